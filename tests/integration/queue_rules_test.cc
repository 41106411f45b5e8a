// What a queue's settings do to its jobs by themselves, on a real PostgreSQL: the time to start, and where dead letters
// go. Layer: tests.
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/status.h"
#include "server/store/postgres/connection.h"
#include "tenure/client.h"
#include "tests/support/daemon_fixture.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/store_fixture.h"
#include "tests/support/tenurectl.h"

namespace tenure::store {
namespace {

using namespace std::chrono_literals;
using ::testing::ContainsRegex;
using testing::Eventually;
using ::testing::HasSubstr;
using testing::StoreTest;

NewJob Spec(absl::Duration delay = absl::ZeroDuration()) {
  NewJob job;
  job.kind = "k";
  job.payload = {"{}", "application/json"};
  if (delay > absl::ZeroDuration()) job.delay = delay;
  return job;
}

class StartWithinTest : public StoreTest {
 protected:
  StartWithinTest() : queue_(store_->EnsureQueue("q", true)->id), replica_(*store_->RegisterReplica("r", "test")) {
    Set(absl::Hours(1));
  }

  void Set(std::optional<absl::Duration> within, const std::string& queue = "q") {
    QueueSettings settings;
    settings.start_within = within;
    const auto updated = store_->UpdateQueue(queue, settings, {"start_within"});
    ASSERT_EQ(updated.status(), absl::OkStatus());
    EXPECT_EQ(updated->settings.start_within, within);
  }
  JobId Enqueue(const NewJob& job) {
    const std::vector<NewJob> jobs{job};
    const auto made = job.idempotency_key.empty() ? store_->Enqueue(queue_, jobs) : store_->EnqueueKeyed(queue_, jobs);
    EXPECT_EQ(made.status(), absl::OkStatus());
    return made->jobs[0].id;
  }
  // From when it is due to when it expires; "never" if it does not.
  std::string Window(const JobId& id) {
    const auto job = store_->Get(id);
    EXPECT_EQ(job.status(), absl::OkStatus());
    return job->expires ? absl::FormatDuration(*job->expires - job->due) : "never";
  }
  ClaimedJob Claim() {
    ClaimBatch batch;
    batch.queue = queue_;
    batch.replica = replica_;
    batch.ranges = {{0, kLowestKey, kHighestKey}};
    batch.workers = {"w"};
    batch.slots = {{.worker = 0, .request = -1, .lease = absl::Minutes(1)}};
    auto claimed = store_->Claim(batch);
    EXPECT_TRUE(claimed.ok() && claimed->jobs.size() == 1) << claimed.status();
    return claimed->jobs.at(0);
  }
  JobId Only(const std::string& condition = "true") {
    return *JobId::Parse(Sql("select queue_id || '-' || day || '-' || id from tenure.job where " + condition), "id");
  }

  const int32_t queue_;
  const int32_t replica_;
};

TEST_F(StartWithinTest, CountsFromTheDueTimeAndGivesWayToTheJobsOwnExpiry) {
  EXPECT_EQ(Window(Enqueue(Spec())), "1h");
  EXPECT_EQ(Window(Enqueue(Spec(absl::Hours(24)))), "1h") << "a delayed job does not expire before it is due";
  NewJob past = Spec();
  past.due = absl::Now() - absl::Hours(5);
  EXPECT_EQ(Window(Enqueue(past)), "1h") << "due in the past is due now";
  NewJob keyed = Spec(absl::Hours(24));
  keyed.idempotency_key = "k";
  EXPECT_EQ(Window(Enqueue(keyed)), "1h");
  NewJob own = Spec();
  own.ttl = absl::Hours(2);
  EXPECT_EQ(Window(Enqueue(own)), "2h");
  own.idempotency_key = "own";
  EXPECT_EQ(Window(Enqueue(own)), "2h");
  Set(std::nullopt);
  EXPECT_EQ(Window(Enqueue(Spec())), "never");
  keyed.idempotency_key = "k2";
  EXPECT_EQ(Window(Enqueue(keyed)), "never");
}

TEST_F(StartWithinTest, AJobThatWouldExpireBeforeItIsDueIsRefusedInSqlToo) {
  EXPECT_THAT(SqlError("select tenure.enqueue('q', 'k', delay => '2 hours', expires_at => now() + interval '1 hour')"),
              HasSubstr("expires_at: must be after delay"));
  EXPECT_THAT(SqlError("select tenure.enqueue('q', 'k', due_at => now() + interval '2 hours', expires_at => now() + "
                       "interval '2 hours')"),
              HasSubstr("expires_at: must be after due_at"));
  EXPECT_NE(Sql("select tenure.enqueue('q', 'k', delay => '1 hour', expires_at => now() + interval '2 hours')"), "");
  EXPECT_NE(Sql("select tenure.enqueue('q', 'k', due_at => now() - interval '1 hour', expires_at => now() + interval "
                "'1 minute')"),
            "");
}

TEST_F(StartWithinTest, TheRuleIsNoPartOfAnEnqueuesContent) {
  NewJob keyed = Spec();
  keyed.idempotency_key = "k";
  const JobId first = Enqueue(keyed);
  Set(absl::Hours(7));
  const std::vector<NewJob> again{keyed};
  const auto repeated = store_->EnqueueKeyed(queue_, again);
  ASSERT_EQ(repeated.status(), absl::OkStatus());
  EXPECT_EQ(repeated->jobs[0].status, absl::OkStatus()) << "the repeat is the same job, whatever the queue says by now";
  EXPECT_EQ(repeated->jobs[0].id, first);
  EXPECT_EQ(Window(first), "1h") << "jobs that are there keep what they came with";
}

TEST_F(StartWithinTest, HoldsForEveryWayInWhichAJobComesIn) {
  const auto id = [&](const std::string& call) { return *JobId::Parse(Sql("select " + call), "id"); };
  EXPECT_EQ(Window(id("tenure.enqueue('q', 'k')")), "1h");
  EXPECT_EQ(Window(id("tenure.enqueue('q', 'k', delay => interval '1 day')")), "1h");
  EXPECT_EQ(Window(id("tenure.enqueue('q', 'k', expires_at => now() + interval '3 hours')")), "3h");
  EXPECT_EQ(Window(id("tenure.enqueue('other', 'k')")), "never");
  Sql("delete from tenure.job");

  // A schedule: by its slot, and by hand.
  ScheduleSettings schedule;
  schedule.timing.interval = absl::Hours(1);
  schedule.queue = "q";
  schedule.job = Spec();
  ASSERT_EQ(store_->CreateSchedule("s", schedule, queue_, false).status(), absl::OkStatus());
  std::vector<ReadyRange> ready;
  EXPECT_EQ(Window(store_->TriggerSchedule("s", "", &ready)->id), "1h");
  Sql("delete from tenure.job");
  Sql("update tenure.schedule set next_at = now() - interval '1 second'");
  const auto fence = store_->AcquireLeader("scheduler", replica_, absl::Minutes(1));
  const auto due = store_->ListDueSchedules(10, {});
  ASSERT_EQ(due.status(), absl::OkStatus());
  ASSERT_EQ(due->schedules.size(), 1u);
  const DueSchedule& row = due->schedules[0];
  const std::vector<Firing> firings{
      {.id = row.id, .version = row.version, .was = row.next, .slots = {row.next}, .next = due->now + absl::Hours(1)}};
  ASSERT_EQ(store_->FireSchedules(**fence, firings)->jobs, 1);
  EXPECT_EQ(Window(Only()), "1h");
  Sql("delete from tenure.job");

  // A follow-up, and the retry of a job that ended.
  Enqueue(Spec());
  const ClaimedJob parent = Claim();
  const std::vector<CompleteItem> items{{parent.token, std::nullopt, {{queue_, Spec()}}}};
  const auto completed = store_->Complete(queue_, items);
  ASSERT_EQ(completed.status(), absl::OkStatus());
  ASSERT_EQ(completed->items[0].follow_ups.size(), 1u);
  EXPECT_EQ(Window(completed->items[0].follow_ups[0]), "1h");
  const auto retried = store_->Retry(parent.job.id, "");
  ASSERT_TRUE(retried.ok() && retried->status.ok()) << retried.status();
  EXPECT_EQ(Window(retried->id), "1h");
}

TEST_F(StartWithinTest, MovedJobsGetTheRuleOfTheirNewQueue) {
  const int32_t to = store_->EnsureQueue("to", true)->id;
  Set(absl::Hours(9), "to");
  const auto fence = store_->AcquireLeader("lifecycle", replica_, absl::Minutes(1));
  const auto move = [&](MoveSource source) {
    const auto made = store_->CreateMove({.from = "q", .to = "to", .source = source}, queue_, to, "");
    ASSERT_EQ(made.status(), absl::OkStatus());
    ASSERT_EQ(store_->StepMove(**fence, made->id, 100)->moved, 1);
  };
  Enqueue(Spec());
  const ClaimedJob job = Claim();
  const std::vector<FailItem> items{{job.token, {.message = "no"}, true, std::nullopt}};
  ASSERT_EQ(store_->Fail(queue_, items).status(), absl::OkStatus());
  move(MoveSource::kDeadLetters);
  EXPECT_EQ(Window(Only()), "9h");
  Sql("delete from tenure.job");

  Enqueue(Spec(absl::Hours(24)));
  move(MoveSource::kBacklog);
  EXPECT_EQ(Window(Only()), "1h") << "a backlog keeps the expiry that it has";
  Sql("delete from tenure.job");

  Set(std::nullopt);
  Enqueue(Spec(absl::Hours(24)));
  move(MoveSource::kBacklog);
  EXPECT_EQ(Window(Only()), "9h") << "what has none gets it";
  Sql("delete from tenure.job");

  Enqueue(Spec());
  Sql("update tenure.job set due_at = now() - interval '1 day'");
  move(MoveSource::kBacklog);
  EXPECT_EQ(Sql("select expires_at - updated_at from tenure.job"), "09:00:00")
      << "what waited for long is not over at once";
  Sql("delete from tenure.job");

  Enqueue(Spec());
  const ClaimedJob started = Claim();
  const std::vector<FailItem> again{{started.token, {.message = "again"}, false, std::nullopt}};
  ASSERT_EQ(store_->Fail(queue_, again).status(), absl::OkStatus());
  move(MoveSource::kBacklog);
  EXPECT_EQ(Window(Only()), "never") << "it has started once";
}

TEST_F(StartWithinTest, WhatDidNotStartInTimeExpiresAndWhatStartedGoesOn) {
  Set(absl::Hours(1));
  const JobId late = Enqueue(Spec()), delayed = Enqueue(Spec(absl::Hours(24)));
  Sql(
      absl::StrCat("update tenure.job set due_at = due_at - interval '2 hours', expires_at = expires_at - interval '2 "
                   "hours' where id = ",
                   late.seq));
  const auto fence = store_->AcquireLeader("lifecycle", replica_, absl::Minutes(1));
  EXPECT_EQ(store_->ExpireJobs(**fence, 10).value_or(-1), 1);
  EXPECT_EQ(store_->Get(late)->state, JobState::kExpired);
  EXPECT_EQ(store_->Get(delayed)->state, JobState::kScheduled);
  const JobId started = Enqueue(Spec());
  const ClaimedJob job = Claim();
  const std::vector<FailItem> again{{job.token, {.message = "again"}, false, std::nullopt}};
  ASSERT_EQ(store_->Fail(queue_, again).status(), absl::OkStatus());
  Sql("update tenure.job set expires_at = now() - interval '1 second' where started_at is not null");
  EXPECT_EQ(store_->ExpireJobs(**fence, 10).value_or(-1), 0) << "a retry is no first start";
  EXPECT_EQ(store_->Get(started)->state, JobState::kScheduled);
}

class DeadLetterRuleTest : public StoreTest {
 protected:
  DeadLetterRuleTest()
      : queue_(store_->EnsureQueue("q", true)->id),
        parked_(store_->EnsureQueue("parked", true)->id),
        replica_(*store_->RegisterReplica("r", "test")),
        fence_(**store_->AcquireLeader("lifecycle", replica_, absl::Hours(1))) {}

  absl::Status Set(const std::string& queue, const std::string& to, std::optional<int32_t> rate = std::nullopt) {
    QueueSettings settings;
    settings.dead_letter_queue = to;
    settings.dead_letter_rate = rate;
    const auto updated = store_->UpdateQueue(queue, settings, {"dead_letter_queue", "dead_letter_jobs_per_second"});
    if (updated.ok()) {
      EXPECT_EQ(updated->settings.dead_letter_queue, to);
      EXPECT_EQ(updated->settings.dead_letter_rate, rate);
    }
    return updated.status();
  }
  // Enqueues `count` jobs and has them die.
  std::vector<JobId> Die(int count, int32_t queue, size_t payload = 2) {
    std::vector<NewJob> jobs(static_cast<size_t>(count), Spec());
    for (NewJob& job : jobs) job.payload.data = std::string(payload, 'x');
    EXPECT_EQ(store_->Enqueue(queue, jobs).status(), absl::OkStatus());
    return Kill(count, queue);
  }
  std::vector<ClaimedJob> Claim(int count, int32_t queue) {
    ClaimBatch batch;
    batch.queue = queue;
    batch.replica = replica_;
    batch.ranges = {{0, kLowestKey, kHighestKey}};
    batch.workers = {"w"};
    batch.slots.assign(static_cast<size_t>(count), {.worker = 0, .request = -1, .lease = absl::Minutes(1)});
    auto claimed = store_->Claim(batch);
    EXPECT_EQ(claimed.status(), absl::OkStatus());
    EXPECT_EQ(claimed->jobs.size(), static_cast<size_t>(count));
    return std::move(claimed->jobs);
  }
  std::vector<JobId> Kill(int count, int32_t queue) {
    std::vector<FailItem> items;
    std::vector<JobId> ids;
    for (const ClaimedJob& job : Claim(count, queue)) {
      items.push_back({job.token, {.message = "no"}, true, std::nullopt});
      ids.push_back(job.job.id);
    }
    EXPECT_EQ(store_->Fail(queue, items).status(), absl::OkStatus());
    return ids;
  }
  // A step of each move that has something to do, as the worker makes them; how many were moved.
  int64_t Round(int limit = 1000) {
    int64_t moved = 0;
    const auto moves = store_->ListRunningMoves();
    EXPECT_EQ(moves.status(), absl::OkStatus());
    for (const int64_t move : *moves) {
      const auto step = store_->StepMove(fence_, move, limit);
      EXPECT_EQ(step.status(), absl::OkStatus());
      moved += step->moved;
      EXPECT_FALSE(step->ended) << "a rule never ends";
    }
    return moved;
  }
  Move Rule() {
    const auto moves = store_->ListMoves(0, 100);
    EXPECT_TRUE(moves.ok() && moves->size() == 1) << moves.status();
    return moves->at(0);
  }
  int Count(const std::string& what) { return std::stoi(Sql("select count(*) from " + what)); }
  std::string ReasonOf(const absl::Status& status) { return DetailsOf(status).reason; }

  const int32_t queue_;
  const int32_t parked_;
  const int32_t replica_;
  const Fence fence_;
};

TEST_F(DeadLetterRuleTest, WhatDiesFromThenOnIsMovedAndEarlierOnesStay) {
  const std::vector<JobId> before = Die(2, queue_);
  ASSERT_EQ(Set("q", "parked"), absl::OkStatus());
  EXPECT_EQ(Round(), 0) << "those died before there was a rule";
  EXPECT_EQ(*store_->ListRunningMoves(), std::vector<int64_t>()) << "a rule with nothing to do takes no turn";
  const std::vector<JobId> ids = Die(3, queue_, 5000);
  EXPECT_EQ(Round(), 3);
  EXPECT_EQ(Round(), 0);
  EXPECT_EQ(metrics_.moved_jobs.Add({{"what", "dead_letter_rule"}}).Value(), 3);
  EXPECT_EQ(store_->Get(before[0])->forwarded_to, "");
  const auto old = store_->Get(ids[0]);
  EXPECT_EQ(old->state, JobState::kDiscarded) << "an outcome never changes";
  const auto made = store_->Get(*JobId::Parse(old->forwarded_to, "id"));
  ASSERT_EQ(made.status(), absl::OkStatus());
  EXPECT_EQ(made->id.queue, parked_);
  EXPECT_EQ(made->state, JobState::kReady);
  EXPECT_EQ(made->failures, 0);
  EXPECT_EQ(made->retry_of, ids[0].ToString());
  EXPECT_EQ(made->payload.data, std::string(5000, 'x'));
  const Move rule = Rule();
  EXPECT_TRUE(rule.standing);
  EXPECT_EQ(rule.spec.from, "q");
  EXPECT_EQ(rule.spec.to, "parked");
  EXPECT_EQ(rule.state, MoveState::kRunning);
  EXPECT_EQ(rule.moved, 3);
  EXPECT_EQ(Count("tenure.dead_letter_due"), 0);
}

TEST_F(DeadLetterRuleTest, AJobThatKillsItsWorkersIsMovedToo) {
  ASSERT_EQ(Set("q", "parked"), absl::OkStatus());
  NewJob job = Spec();
  job.crash_budget = 1;
  const std::vector<NewJob> jobs{job};
  ASSERT_EQ(store_->Enqueue(queue_, jobs).status(), absl::OkStatus());
  const ClaimedJob claimed = Claim(1, queue_)[0];
  Sql("update tenure.job set lease_until = now() - interval '1 s'");
  const std::vector<LeaseRef> leases{{queue_, claimed.job.id.seq, claimed.token.number, claimed.grant}};
  std::vector<ReadyRange> ready;
  ASSERT_EQ(store_->Reap(queue_, leases, &ready).status(), absl::OkStatus());
  EXPECT_EQ(store_->Get(claimed.job.id)->state, JobState::kDiscarded);
  EXPECT_EQ(Round(), 1);
}

TEST_F(DeadLetterRuleTest, ResetPausesItAndSetAgainItGoesOn) {
  ASSERT_EQ(Set("q", "parked"), absl::OkStatus());
  Die(2, queue_);
  ASSERT_EQ(Set("q", ""), absl::OkStatus());
  EXPECT_EQ(Rule().state, MoveState::kPaused);
  Die(3, queue_);
  EXPECT_EQ(Round(), 0);
  EXPECT_EQ(store_->StepMove(fence_, Rule().id, 100)->moved, 0);
  ASSERT_EQ(Set("q", "parked", 7), absl::OkStatus());
  EXPECT_EQ(Rule().state, MoveState::kRunning);
  EXPECT_EQ(Rule().spec.rate, std::optional<int32_t>(7));
  EXPECT_EQ(ReasonOf(Set("q", "missing")), "QUEUE_NOT_FOUND") << "the engine makes it first, if it may";
  EXPECT_EQ(Rule().spec.to, "parked");
  const int32_t other = store_->EnsureQueue("other", true)->id;
  ASSERT_EQ(Set("q", "other"), absl::OkStatus());
  EXPECT_EQ(Rule().spec.to, "other") << "one rule a queue";
  EXPECT_EQ(Round(), 2) << "what it had not come to; those that died while there was no rule stay";
  EXPECT_EQ(Sql(absl::StrCat("select count(*) from tenure.job where queue_id = ", other)), "2");
}

TEST_F(DeadLetterRuleTest, ItsRateIsKept) {
  ASSERT_EQ(Set("q", "parked", 10), absl::OkStatus());
  Sql("update tenure.move set used_until = now() - interval '1 hour'");
  Die(50, queue_);
  EXPECT_EQ(Round(), 10) << "a second's worth, however long there was nothing";
  Sql("update tenure.move set used_until = now()");
  const absl::Time before = absl::Now();
  const int64_t at_once = Round();
  EXPECT_LE(static_cast<double>(at_once), 1 + 10 * absl::ToDoubleSeconds(absl::Now() - before));
  Sql("update tenure.move set used_until = now() - interval '500 ms'");
  const int64_t moved = Round();
  EXPECT_GE(moved, 5);
  EXPECT_LE(moved, 10);
  Sql("update tenure.move set used_until = now() + interval '1 hour'");
  EXPECT_EQ(Round(), 0) << "what was allowed has been used up";
}

TEST_F(DeadLetterRuleTest, NoRuleLeadsBackToItsQueue) {
  for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(store_->EnsureQueue(name, true).ok());
  const auto refusal = [&](const std::string& from, const std::string& to) {
    const absl::Status status = Set(from, to);
    EXPECT_EQ(ReasonOf(status), "INVALID_FIELD") << status;
    EXPECT_EQ(DetailsOf(status).metadata["field"], "settings.dead_letter_queue");
    return DetailsOf(status).metadata["rule"];
  };
  EXPECT_THAT(refusal("a", "a"), HasSubstr("a -> a"));
  ASSERT_EQ(Set("a", "b"), absl::OkStatus());
  EXPECT_THAT(refusal("b", "a"), HasSubstr("b -> a -> b"));
  ASSERT_EQ(Set("b", "c"), absl::OkStatus());
  EXPECT_THAT(refusal("c", "a"), HasSubstr("c -> a -> b -> c"));
  QueueSettings self;
  self.dead_letter_queue = "new";
  EXPECT_EQ(ReasonOf(store_->CreateQueue("new", self, false).status()), "INVALID_FIELD");
  // A chain ends: each death is one step of it, and at its end a dead letter stays.
  const auto id = [&](const char* name) { return store_->EnsureQueue(name, false)->id; };
  Die(1, id("a"));
  EXPECT_EQ(Round(), 1);
  Kill(1, id("b"));
  EXPECT_EQ(Round(), 1);
  Kill(1, id("c"));
  EXPECT_EQ(Round(), 0);
  EXPECT_EQ(Count("tenure.dead_letter"), 3);
  EXPECT_EQ(Count("tenure.job"), 0);
}

TEST_F(DeadLetterRuleTest, TwoRulesThatAreSetAtOnceDoNotLeadToEachOther) {
  for (int round = 0; round < 10; ++round) {
    const std::string a = absl::StrCat("a", round), b = absl::StrCat("b", round);
    ASSERT_TRUE(store_->EnsureQueue(a, true).ok());
    ASSERT_TRUE(store_->EnsureQueue(b, true).ok());
    absl::Status one, two;
    {
      const std::jthread first([&] { one = Set(a, b); });
      const std::jthread second([&] { two = Set(b, a); });
    }
    EXPECT_NE(one.ok(), two.ok()) << one << two;
  }
}

TEST_F(DeadLetterRuleTest, AMovedJobThatIsBroughtBackByHandIsMovedAgainWhenItDies) {
  ASSERT_EQ(Set("q", "parked"), absl::OkStatus());
  Die(1, queue_);
  ASSERT_EQ(Round(), 1);
  const auto back =
      store_->CreateMove({.from = "parked", .to = "q", .source = MoveSource::kBacklog}, parked_, queue_, "");
  ASSERT_EQ(back.status(), absl::OkStatus());
  ASSERT_EQ(store_->StepMove(fence_, back->id, 10)->moved, 1);
  ASSERT_EQ(store_->SetMoveState(back->id, MoveState::kCancelled).status(), absl::OkStatus());
  Kill(1, queue_);
  EXPECT_EQ(Round(), 1);
  EXPECT_EQ(Sql(absl::StrCat("select count(*) from tenure.job where queue_id = ", parked_)), "1");
}

TEST_F(DeadLetterRuleTest, OnlyTheSettingSteersItsMove) {
  ASSERT_EQ(Set("q", "parked"), absl::OkStatus());
  for (const MoveState state : {MoveState::kPaused, MoveState::kRunning, MoveState::kCancelled}) {
    EXPECT_EQ(ReasonOf(store_->SetMoveState(Rule().id, state).status()), "MOVE_STANDING");
  }
  EXPECT_EQ(Rule().state, MoveState::kRunning);
}

TEST_F(DeadLetterRuleTest, WhatIsHeldWaitsAndWhatIsGoneIsStruckOut) {
  ASSERT_EQ(Set("q", "parked"), absl::OkStatus());
  const std::vector<JobId> ids = Die(4, queue_, 5000);
  auto other = postgres::Connection::Open(database_.url(), "other", absl::Seconds(5)).value();
  {
    postgres::Transaction tx(*other, {absl::Seconds(30)});
    const std::string hold = absl::StrCat("select 1 from tenure.dead_letter where id = ", ids[0].seq, " for update");
    ASSERT_TRUE(tx.Run(hold, postgres::Params()).ok());
    Sql(absl::StrCat("delete from tenure.payload where id = ", ids[1].seq));
    Sql(absl::StrCat("delete from tenure.dead_letter where id = ", ids[2].seq));
    EXPECT_EQ(Round(), 1);
    EXPECT_EQ(Sql("select string_agg(id::text, ',') from tenure.dead_letter_due"), absl::StrCat(ids[0].seq));
    EXPECT_EQ(Rule().failed, 1);
    EXPECT_EQ(Round(), 0);
  }
  EXPECT_TRUE(Eventually(10, [&] { return Round() == 1; }));
  EXPECT_EQ(Rule().failed, 1) << "not forgotten with the next pass";
  EXPECT_EQ(Count("tenure.dead_letter_due"), 0);
}

TEST_F(DeadLetterRuleTest, AMoveByHandAndTheRuleShareNoJob) {
  ASSERT_EQ(Set("q", "parked"), absl::OkStatus());
  Die(1, queue_);
  const auto by_hand = store_->CreateMove({.from = "q", .to = "q"}, queue_, queue_, "");
  ASSERT_EQ(by_hand.status(), absl::OkStatus());
  ASSERT_EQ(store_->StepMove(fence_, by_hand->id, 10)->moved, 1);
  ASSERT_EQ(store_->SetMoveState(by_hand->id, MoveState::kCancelled).status(), absl::OkStatus());
  EXPECT_EQ(Round(), 0);
  EXPECT_EQ(Count("tenure.dead_letter_due"), 0);
  EXPECT_EQ(Count("tenure.job"), 1);
}

TEST_F(DeadLetterRuleTest, AStaleLeaderMovesNothingAndOldRemaindersAreForgotten) {
  ASSERT_EQ(Set("q", "parked"), absl::OkStatus());
  Die(2, queue_);
  Fence stale = fence_;
  --stale.term;
  EXPECT_EQ(store_->StepMove(stale, Rule().id, 10)->moved, 0);
  EXPECT_EQ(Count("tenure.dead_letter_due"), 2);
  const ShardFence shards = testing::HoldShards(*store_, "retention", replica_);
  ASSERT_TRUE(store_->PruneMoves(shards, absl::Hours(48), 100).ok());
  EXPECT_EQ(Count("tenure.dead_letter_due"), 2);
  Sql("update tenure.dead_letter_due set ended_on = ended_on - 3");
  ASSERT_TRUE(store_->PruneMoves(shards, absl::Hours(48), 100).ok());
  EXPECT_EQ(Count("tenure.dead_letter_due"), 0);
  EXPECT_EQ(Rule().state, MoveState::kRunning) << "the rule stays";
}

class QueueRulesDaemonTest : public testing::DaemonFixture {};

TEST_F(QueueRulesDaemonTest, StartWithinIsSetAndHoldsOnEveryReplica) {
  const auto one = Start(), two = Start();
  client::Client client = Connect(two->grpc_address());
  ASSERT_TRUE(client.CreateQueue("slow").ok());
  const testing::CliRun set = testing::RunTenurectl(one->grpc_address(), "queue update slow --start-within 300ms");
  EXPECT_EQ(set.status, 0) << set.err;
  EXPECT_THAT(set.out, ContainsRegex("start within +300ms"));
  const auto enqueued = client.Enqueue({.queue = "slow", .kind = "k"});
  ASSERT_EQ(enqueued.status(), absl::OkStatus());
  EXPECT_TRUE(Eventually(20, [&] { return client.Get(enqueued->job_id)->state == client::JobState::kExpired; }));
  EXPECT_EQ(client.GetQueue("slow")->settings.start_within, std::optional<client::Duration>(300ms));
  const testing::CliRun reset = testing::RunTenurectl(one->grpc_address(), "queue update slow --reset start_within");
  EXPECT_EQ(reset.status, 0) << reset.err;
  EXPECT_EQ(client.GetQueue("slow")->settings.start_within, std::nullopt);
  const testing::CliRun alone = testing::RunTenurectl(one->grpc_address(), "queue update slow --dead-letter-rate 5");
  EXPECT_EQ(alone.status, 2);
  EXPECT_THAT(alone.err, HasSubstr("--dead-letter-rate: the queue has no rule"));
  const testing::CliRun bad = testing::RunTenurectl(one->grpc_address(), "queue update slow --start-within 0s");
  EXPECT_NE(bad.status, 0);
  EXPECT_THAT(bad.err, HasSubstr("start_within"));
}

TEST_F(QueueRulesDaemonTest, AKilledLeaderIsFollowedAndEachDeadLetterIsMovedOnce) {
  auto first = StartProcess();
  ASSERT_TRUE(Eventually(20, [&] {
    return Sql("select count(*) from tenure.leader where worker = 'lifecycle' and expires_at > now()") == "1";
  }));
  auto second = StartProcess();
  client::Client client = Connect(second->grpc_address());
  client::QueueSettings settings;
  settings.dead_letter_queue = "parked";
  settings.dead_letter_jobs_per_second = 100;
  ASSERT_EQ(client.CreateQueue("q", settings).status(), absl::OkStatus());
  std::vector<client::JobSpec> specs(600, client::JobSpec{.queue = "q", .kind = "k"});
  for (const auto& enqueued : client.EnqueueBatch(specs)) ASSERT_TRUE(enqueued.ok()) << enqueued.status();
  for (int died = 0; died < 600;) {
    client::ClaimOptions claim;
    claim.worker_id = "w";
    claim.queues = {{"q"}};
    claim.max_jobs = 200;
    const auto claimed = client.Claim(claim);
    ASSERT_EQ(claimed.status(), absl::OkStatus());
    std::vector<client::FailItem> items;
    for (const auto& job : claimed->jobs)
      items.push_back({.lease_token = job.lease_token, .error = {.message = "no"}, .non_retryable = true});
    for (const auto& failed : client.FailBatch(items)) ASSERT_TRUE(failed.ok()) << failed.status();
    died += static_cast<int>(items.size());
  }
  const auto moved = [&] { return client.ListMoves()->moves.at(0).moved_jobs; };
  ASSERT_TRUE(Eventually(20, [&] { return moved() >= 100; }));
  first->Kill();
  ASSERT_TRUE(Eventually(60, [&] { return moved() == 600; }));
  EXPECT_EQ(Sql("select count(*) || ' ' || count(distinct retry_of) from tenure.job"), "600 600");
  EXPECT_TRUE(client.ListMoves()->moves.at(0).standing);
  EXPECT_EQ(client.GetQueue("q")->settings.dead_letter_queue, std::optional<std::string>("parked"));
}

TEST_F(QueueRulesDaemonTest, TheRuleThroughTenurectl) {
  const auto daemon = Start();
  const auto run = [&](const std::string& arguments) {
    return testing::RunTenurectl(daemon->grpc_address(), arguments);
  };
  ASSERT_EQ(run("queue create q --dead-letter-queue parked --dead-letter-rate 50").status, 0);
  EXPECT_THAT(run("queue get q").out, ContainsRegex("dead letters go to +parked, 50 a second"));
  EXPECT_THAT(run("move list").out, HasSubstr("dead letter rule"));
  testing::CliRun bad = run("queue update parked --dead-letter-queue q");
  EXPECT_EQ(bad.status, 1);
  EXPECT_THAT(bad.err, HasSubstr("parked -> q -> parked"));
  bad = run("queue update q --dead-letter-queue no+good");
  EXPECT_THAT(bad.err, HasSubstr("settings.dead_letter_queue"));
  bad = run("queue create self --dead-letter-queue self");
  EXPECT_THAT(bad.err, HasSubstr("must be another queue"));
  EXPECT_EQ(run("queue get self").status, 1) << "nothing was made";
  bad = run("queue update missing --dead-letter-queue parked");
  EXPECT_THAT(bad.err, HasSubstr("QUEUE_NOT_FOUND"));
  bad = run("move pause 1");
  EXPECT_THAT(bad.err, HasSubstr("MOVE_STANDING"));
  EXPECT_EQ(run("queue update q --reset dead_letter_queue --reset dead_letter_jobs_per_second").status, 0);
  EXPECT_THAT(run("move get 1").out, ContainsRegex("state +paused"));
}

}  // namespace
}  // namespace tenure::store

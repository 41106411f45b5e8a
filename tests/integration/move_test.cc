// Moves on a real PostgreSQL: what becomes of a job, rate and flight, passes, and that a step which is cut short or
// repeated doubles and loses nothing. Layer: tests.
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/status.h"
#include "server/store/postgres/connection.h"
#include "tenure/client.h"
#include "tests/support/daemon_fixture.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/move_fixture.h"
#include "tests/support/tenurectl.h"

namespace tenure::store {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using testing::Eventually;
using ::testing::HasSubstr;

class MoveTest : public testing::MoveFixture {};
class MoveDaemonTest : public testing::DaemonFixture {};

TEST_F(MoveTest, DeadLettersBecomeReadyJobsWithFreshBudgetsAndALink) {
  const std::vector<JobId> ids = Enqueue(3, absl::ZeroDuration(), "k", 5000);
  Kill(from_, 3);
  const Move move = Make({});
  EXPECT_EQ(move.state, MoveState::kRunning);
  MoveStep step = Step(move.id);
  EXPECT_EQ(step.moved, 3);
  EXPECT_EQ(metrics_.moved_jobs.Add({{"what", "dead_letters"}}).Value(), 3);
  ASSERT_EQ(step.ready.size(), 1u);
  EXPECT_EQ(step.ready[0].queue, to_);
  EXPECT_EQ(step.ready[0].count, 3);
  EXPECT_EQ(Finish(move.id), 0);
  EXPECT_EQ(store_->GetMove(move.id)->state, MoveState::kDone);
  EXPECT_EQ(store_->GetMove(move.id)->moved, 3);
  EXPECT_TRUE(store_->GetMove(move.id)->ended.has_value());

  const auto old = store_->Get(ids[0]);
  ASSERT_EQ(old.status(), absl::OkStatus());
  EXPECT_EQ(old->state, JobState::kDiscarded) << "an outcome never changes";
  const auto id = JobId::Parse(old->forwarded_to, "id");
  ASSERT_TRUE(id.ok()) << old->forwarded_to;
  const auto made = store_->Get(*id);
  ASSERT_EQ(made.status(), absl::OkStatus());
  EXPECT_EQ(made->id.queue, to_);
  EXPECT_EQ(made->state, JobState::kReady);
  EXPECT_EQ(made->retry_of, ids[0].ToString());
  EXPECT_EQ(made->effect_key, ids[0].ToString());
  EXPECT_EQ(made->attempt, 0);
  EXPECT_EQ(made->failures, 0);
  EXPECT_EQ(made->payload.data, std::string(5000, 'x')) << "a large payload goes along";
  EXPECT_EQ(made->headers.at("h"), "v");
  EXPECT_EQ(made->priority, 3);
  EXPECT_FALSE(made->error.has_value());
  Kill(to_, 3);
  EXPECT_EQ(Count("tenure.job"), 0) << "they could be claimed";
}

TEST_F(MoveTest, DeadLettersThatAreMovedAgainAreNotAndLaterOnesWait) {
  Enqueue(2);
  Kill(from_, 2);
  EXPECT_EQ(Finish(Make({}).id), 2);
  EXPECT_EQ(Finish(Make({}).id), 0) << "they have been moved";
  const Move open = Make({});
  Enqueue(1);
  Kill(from_, 1);
  EXPECT_EQ(Finish(open.id), 0) << "it died after the move was made";
  EXPECT_EQ(Finish(Make({.to = "from"}).id), 1) << "back to the same queue";
  EXPECT_EQ(Sql(absl::StrCat("select count(*) from tenure.job where queue_id = ", from_)), "1");
}

TEST_F(MoveTest, ABacklogGoesOnUnderNewIdsWithItsCountersAndDueTimes) {
  const std::vector<JobId> ready = Enqueue(2), later = Enqueue(2, absl::Hours(1));
  Enqueue(1, absl::ZeroDuration(), "other");
  Sql("update tenure.job set failures = 2, attempt = 3 where kind = 'k'");
  const Move move = Make({.source = MoveSource::kBacklog, .kinds = {"k"}});
  const MoveStep step = Step(move.id);
  EXPECT_EQ(step.moved, 4);
  EXPECT_EQ(metrics_.moved_jobs.Add({{"what", "backlog"}}).Value(), 4);
  ASSERT_TRUE(step.earliest_due.has_value());
  EXPECT_GT(*step.earliest_due, absl::Minutes(59));
  Finish(move.id);
  EXPECT_EQ(Sql(absl::StrCat("select count(*) from tenure.job where queue_id = ", from_)), "1") << "another kind";
  const auto old = store_->Get(later[0]);
  ASSERT_EQ(old.status(), absl::OkStatus());
  EXPECT_EQ(old->state, JobState::kCancelled);
  EXPECT_EQ(old->error->type, "Moved");
  const auto made = store_->Get(*JobId::Parse(old->forwarded_to, "id"));
  ASSERT_EQ(made.status(), absl::OkStatus());
  EXPECT_EQ(made->state, JobState::kScheduled);
  EXPECT_EQ(made->due, old->due);
  EXPECT_EQ(made->created, old->created);
  EXPECT_EQ(made->failures, 2);
  EXPECT_EQ(made->attempt, 3);
  EXPECT_EQ(Sql(absl::StrCat("select count(*) from tenure.job where state = 3 and queue_id = ", to_)), "2");
  // The counts of both queues agree with their rows.
  EXPECT_EQ(Sql("select string_agg(queue_id || ' ' || ready || ' ' || scheduled || ' ' || cancelled, ', ' order by "
                "queue_id) from ("
                "select queue_id, coalesce(sum(ready), 0) as ready, coalesce(sum(scheduled), 0) as scheduled, "
                "coalesce(sum(cancelled), 0) as "
                "cancelled from tenure.event group by queue_id having coalesce(sum(enqueued), 0) > 0) e"),
            absl::StrCat(from_, " 1 0 4, ", to_, " 2 2 0"));
}

TEST_F(MoveTest, ABacklogMoveTellsTheEndOfEachOldJobAndADeadLetterMoveTellsNone) {
  const auto make = [&](const char* name, int16_t events, const char* queue) {
    TargetSettings settings;
    settings.url = "https://example.com/hook";
    settings.secret = "a-secret-of-sixteen";
    settings.queues = {queue};
    settings.events = events;
    const std::vector<int32_t> ids{store_->EnsureQueue(queue, false)->id};
    const auto made = store_->CreateTarget(name, settings, ids, false);
    EXPECT_EQ(made.status(), absl::OkStatus());
    return made->id;
  };
  const int64_t all = make("all", kAllEvents, "from"),
                completed = make("completed", EventBit(JobState::kCompleted), "from"),
                of_to = make("of-to", kAllEvents, "to");
  const Fence notify = **store_->AcquireLeader("notify", replica_, absl::Hours(1));
  const auto take = [&](int64_t target) {
    std::vector<JobEvent> events;
    for (bool more = true; more;) {
      const auto page = store_->TakePage(notify, target, 100, false);
      EXPECT_EQ(page.status(), absl::OkStatus());
      events.insert(events.end(), page->events.begin(), page->events.end());
      EXPECT_EQ(store_->FinishPage(notify, target, *page, page->events.size(), {}, ""), absl::OkStatus());
      more = page->more;
    }
    return events;
  };
  const std::vector<JobId> ready = Enqueue(1), scheduled = Enqueue(1, absl::Hours(1));
  EXPECT_EQ(Finish(Make({.source = MoveSource::kBacklog}).id), 2);
  const std::vector<JobEvent> events = take(all);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].Id(), ready[0].ToString() + ".cancelled");
  EXPECT_EQ(events[1].Id(), scheduled[0].ToString() + ".cancelled");
  EXPECT_EQ(events[0].queue, "from");
  EXPECT_EQ(events[0].error_type, "Moved");
  EXPECT_EQ(events[0].error_message, "moved to " + store_->Get(ready[0])->forwarded_to);
  EXPECT_TRUE(take(completed).empty()) << "it asked for others";
  EXPECT_TRUE(take(of_to).empty()) << "the new job has not ended";
  // A job that is cancelled in the other queue ends once more, under its new id.
  const JobId moved = *JobId::Parse(store_->Get(ready[0])->forwarded_to, "id");
  ASSERT_TRUE(store_->Cancel(to_, std::vector<JobId>{moved}, "not needed").ok());
  const std::vector<JobEvent> later = take(of_to);
  ASSERT_EQ(later.size(), 1u);
  EXPECT_EQ(later[0].Id(), moved.ToString() + ".cancelled");
  EXPECT_EQ(later[0].retry_of, ready[0].ToString());
  EXPECT_NE(later[0].error_type, "Moved");
  // A dead letter that is moved has ended before, and does not end again.
  Enqueue(1);
  Kill(from_, 1);
  ASSERT_EQ(take(all).size(), 1u);
  EXPECT_EQ(Finish(Make({}).id), 1);
  EXPECT_TRUE(take(all).empty());
  EXPECT_TRUE(take(of_to).empty());
}

TEST_F(MoveTest, WhatSomebodyHoldsIsPassedOverAndComesWithALaterPass) {
  const std::vector<JobId> ids = Enqueue(3);
  const Move move = Make({.source = MoveSource::kBacklog});
  auto other = postgres::Connection::Open(database_.url(), "other", absl::Seconds(5)).value();
  {
    postgres::Transaction tx(*other, {absl::Seconds(30)});
    const std::string hold = absl::StrCat("select 1 from tenure.job where id = ", ids[0].seq, " for update");
    ASSERT_TRUE(tx.Run(hold, postgres::Params()).ok());
    EXPECT_EQ(Step(move.id).moved, 2);
    EXPECT_FALSE(Step(move.id).ended) << "the first pass found some: it begins anew";
  }
  EXPECT_EQ(Finish(move.id), 1);
  EXPECT_EQ(Sql(absl::StrCat("select count(*) from tenure.job where queue_id = ", to_)), "3");
}

TEST_F(MoveTest, LeasedJobsStay) {
  Enqueue(2);
  ClaimBatch batch;
  batch.queue = from_;
  batch.replica = replica_;
  batch.ranges = {{3, kLowestKey, kHighestKey}};
  batch.workers = {"w"};
  batch.slots.assign(1, {.worker = 0, .request = -1, .lease = absl::Minutes(1)});
  const auto claimed = store_->Claim(batch);
  ASSERT_EQ(claimed->jobs.size(), 1u);
  EXPECT_EQ(Finish(Make({.source = MoveSource::kBacklog}).id), 1);
  const std::vector<CompleteItem> items{{claimed->jobs[0].token, std::nullopt, {}}};
  EXPECT_EQ(store_->Complete(from_, items)->items[0].state, TokenState::kWon);
}

TEST_F(MoveTest, TheRateIsKept) {
  Enqueue(400);
  const Move move = Make({.source = MoveSource::kBacklog, .rate = 200});
  const absl::Time began = absl::Now();
  int64_t moved = 0;
  std::mutex mutex;
  std::condition_variable never;
  while (absl::Now() - began < absl::Milliseconds(1500)) {
    const MoveStep step = Step(move.id);
    moved += step.moved;
    EXPECT_GT(step.wait, absl::ZeroDuration());
    std::unique_lock<std::mutex> lock(mutex);
    never.wait_for(lock, absl::ToChronoNanoseconds(std::max(step.wait, absl::Milliseconds(1))));
  }
  const double seconds = absl::ToDoubleSeconds(absl::Now() - began);
  // What one second allows may come at once, whatever the steps' own time.
  EXPECT_LE(static_cast<double>(moved), 200 * (seconds + 0.2));
  EXPECT_GE(static_cast<double>(moved), 200 * (seconds - 1.2));
}

TEST_F(MoveTest, NoMoreThanTheBoundAreInFlight) {
  Enqueue(25);
  Kill(from_, 25);
  const Move move = Make({.max_in_flight = 10});
  EXPECT_EQ(Step(move.id).moved, 10);
  MoveStep step = Step(move.id);
  EXPECT_EQ(step.moved, 0);
  EXPECT_FALSE(step.ended);
  EXPECT_GT(step.wait, absl::ZeroDuration());
  Kill(to_, 4);
  EXPECT_EQ(Step(move.id).moved, 4) << "as many as have ended";
  EXPECT_EQ(Sql(absl::StrCat("select count(*) from tenure.job where queue_id = ", to_)), "10");
}

TEST_F(MoveTest, PauseResumeCancelAndTheirRefusals) {
  Enqueue(10);
  const Move move = Make({.source = MoveSource::kBacklog}, "once");
  EXPECT_EQ(Make({.source = MoveSource::kBacklog}, "once").id, move.id) << "a repeat makes no second one";
  EXPECT_EQ(Step(move.id, 2).moved, 2);
  EXPECT_EQ(store_->SetMoveState(move.id, MoveState::kPaused)->state, MoveState::kPaused);
  EXPECT_EQ(store_->SetMoveState(move.id, MoveState::kPaused)->state, MoveState::kPaused);
  EXPECT_EQ(Step(move.id).moved, 0);
  EXPECT_TRUE(store_->ListRunningMoves()->empty());
  EXPECT_EQ(store_->SetMoveState(move.id, MoveState::kRunning)->state, MoveState::kRunning);
  EXPECT_EQ(Step(move.id, 3).moved, 3);
  EXPECT_EQ(store_->SetMoveState(move.id, MoveState::kCancelled)->state, MoveState::kCancelled);
  EXPECT_EQ(Step(move.id).moved, 0);
  EXPECT_EQ(store_->GetMove(move.id)->moved, 5);
  EXPECT_EQ(store_->SetMoveState(move.id, MoveState::kCancelled)->state, MoveState::kCancelled) << "idempotent";
  EXPECT_EQ(DetailsOf(store_->SetMoveState(move.id, MoveState::kRunning).status()).reason, "MOVE_ENDED");
  EXPECT_EQ(DetailsOf(store_->SetMoveState(999, MoveState::kPaused).status()).reason, "MOVE_NOT_FOUND");
  EXPECT_EQ(DetailsOf(store_->GetMove(999).status()).reason, "MOVE_NOT_FOUND");
}

TEST_F(MoveTest, BacklogMovesDoNotLeadBack) {
  const int32_t third = store_->EnsureQueue("third", true)->id;
  const Move first = Make({.source = MoveSource::kBacklog}, "once");
  Make({.from = "to", .to = "third", .source = MoveSource::kBacklog});
  const MoveSpec back{.from = "third", .to = "from", .source = MoveSource::kBacklog};
  const absl::Status refused = store_->CreateMove(back, third, from_, "back").status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr("third -> from -> to -> third"));
  EXPECT_EQ(Make({.source = MoveSource::kBacklog}, "once").id, first.id) << "a repeat is no second one";
  // Dead letters are not made by a move.
  Make({.from = "third", .to = "from", .source = MoveSource::kDeadLetters});
  EXPECT_TRUE(store_->SetMoveState(first.id, MoveState::kCancelled).ok());
  EXPECT_TRUE(store_->CreateMove(back, third, from_, "back").ok());
}

TEST_F(MoveTest, AStaleLeaderMovesNothing) {
  Enqueue(3);
  const Move move = Make({.source = MoveSource::kBacklog});
  ASSERT_EQ(store_->ReleaseLeader(fence_), absl::OkStatus());
  ASSERT_TRUE((*store_->AcquireLeader("lifecycle", replica_, absl::Hours(1))).has_value());
  EXPECT_EQ(store_->StepMove(fence_, move.id, 10)->moved, 0);
  EXPECT_EQ(store_->NoteMoveError(fence_, move.id, "stale"), absl::OkStatus());
  EXPECT_EQ(store_->GetMove(move.id)->last_error, "");
  EXPECT_EQ(Sql(absl::StrCat("select count(*) from tenure.job where queue_id = ", from_)), "3");
}

// Sessions are ended in the middle of steps, again and again; two movers take turns on two moves of the same jobs.
TEST_F(MoveTest, AMoveThatIsCutShortAnywhereDoublesAndLosesNothing) {
  constexpr int kJobs = 400;
  Enqueue(kJobs);
  Kill(from_, kJobs / 2);
  std::vector<std::jthread> movers;
  std::atomic<int> running = 2;
  for (const MoveSource source : {MoveSource::kDeadLetters, MoveSource::kBacklog}) {
    const Move first = Make({.source = source}), second = Make({.source = source});
    movers.emplace_back([this, first, second, &running] {
      auto own = OpenStore(2);
      for (bool ended = false; !ended;) {
        ended = true;
        for (const int64_t id : {first.id, second.id}) {
          const auto step = own->StepMove(fence_, id, 7);
          ended = ended && step.ok() && step->ended;
        }
      }
      --running;
    });
  }
  std::jthread killer([&] {
    while (running > 0) {
      Sql("select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database() and "
          "application_name = "
          "'tenured' and query like '%tenure.move%' and pid <> pg_backend_pid() and random() < 0.3");
    }
  });
  movers.clear();
  killer.join();
  EXPECT_EQ(Sql(absl::StrCat("select count(*) from tenure.job where queue_id = ", to_)), absl::StrCat(kJobs));
  EXPECT_EQ(Sql("select count(distinct retry_of) from tenure.job"), absl::StrCat(kJobs));
  EXPECT_EQ(Count("tenure.forward"), kJobs);
  EXPECT_EQ(Sql("select sum(moved) from tenure.move"), absl::StrCat(kJobs));
  EXPECT_EQ(Sql(absl::StrCat("select sum(ready) from tenure.event where queue_id = ", to_)), absl::StrCat(kJobs));
}

TEST_F(MoveTest, AJobWhosePayloadIsGoneIsCountedAndKeepsNobodyWaiting) {
  Enqueue(1, absl::ZeroDuration(), "k", 5000);
  Enqueue(1);
  Kill(from_, 2);
  Sql("delete from tenure.payload");
  const Move move = Make({});
  EXPECT_EQ(Finish(move.id), 1);
  EXPECT_EQ(store_->GetMove(move.id)->failed, 1);
  EXPECT_THAT(store_->GetMove(move.id)->last_error, HasSubstr("payload"));
}

TEST_F(MoveTest, LinksAndMovesAreForgottenPastTheirAge) {
  Enqueue(2);
  Finish(Make({.source = MoveSource::kBacklog}).id);
  const Move open = Make({});
  const ShardFence shards = testing::HoldShards(*store_, "retention", replica_);
  EXPECT_EQ(store_->PruneMoves(shards, absl::Hours(1), 100).value_or(-1), 0);
  Sql("update tenure.forward set moved_at = now() - interval '2 h'");
  Sql("update tenure.move set ended_at = ended_at - interval '2 h'");
  EXPECT_EQ(store_->PruneMoves(shards, absl::Hours(1), 100).value_or(-1), 2);
  EXPECT_EQ(Count("tenure.forward"), 0);
  EXPECT_EQ(store_->ListMoves(0, 10)->size(), 1u) << "one that runs stays";
  EXPECT_EQ(store_->GetMove(open.id)->state, MoveState::kRunning);
}

TEST_F(MoveDaemonTest, AWholeRoundThroughTheClientAndTenurectl) {
  const auto daemon = Start();
  client::Client client = Connect(daemon->grpc_address());
  std::vector<std::string> ids;
  for (int i = 0; i < 5; ++i) ids.push_back(client.Enqueue({.queue = "from", .kind = "k"})->job_id);
  // A poll that is parked on the target is woken by the move.
  std::jthread worker([&] {
    client::Client own = Connect(daemon->grpc_address());
    client::ClaimOptions claim;
    claim.worker_id = "w";
    claim.queues = {{"to"}};
    claim.max_jobs = 1;
    claim.wait = 20s;
    const auto claimed = own.Claim(claim);
    ASSERT_TRUE(claimed.ok() && claimed->jobs.size() == 1) << claimed.status();
    EXPECT_EQ(own.Complete({.lease_token = claimed->jobs[0].lease_token}).status(), absl::OkStatus());
  });
  const auto move =
      client.CreateMove({.from_queue = "from", .to_queue = "to", .source = client::MoveSource::kBacklog}, "r1");
  ASSERT_EQ(move.status(), absl::OkStatus());
  EXPECT_EQ(
      client.CreateMove({.from_queue = "from", .to_queue = "to", .source = client::MoveSource::kBacklog}, "r1")->id,
      move->id);
  EXPECT_TRUE(Eventually(20, [&] { return client.GetMove(move->id)->state == client::MoveState::kDone; }));
  EXPECT_EQ(client.GetMove(move->id)->moved_jobs, 5);
  worker.join();
  EXPECT_EQ(client.ListMoves()->moves.size(), 1u);
  EXPECT_EQ(client.CancelMove(move->id).status().code(), absl::StatusCode::kFailedPrecondition);

  const testing::CliRun old = testing::RunTenurectl(daemon->grpc_address(), absl::StrCat("job get --exact ", ids[0]));
  EXPECT_THAT(old.out, ContainsRegex("forwarded to +[0-9]+-[0-9]+-[0-9]+"));
  const testing::CliRun list = testing::RunTenurectl(daemon->grpc_address(), "move list");
  EXPECT_THAT(list.out, AllOf(HasSubstr("done"), HasSubstr("backlog"), HasSubstr("from")));
  testing::CliRun bad = testing::RunTenurectl(daemon->grpc_address(), "move create --from from --to to");
  EXPECT_EQ(bad.status, 2);
  EXPECT_THAT(bad.err, HasSubstr("--dead-letters or --backlog"));
  bad = testing::RunTenurectl(daemon->grpc_address(), "move create --from nowhere --dead-letters");
  EXPECT_EQ(bad.status, 1);
  EXPECT_THAT(bad.err, HasSubstr("QUEUE_NOT_FOUND"));
  bad = testing::RunTenurectl(daemon->grpc_address(), "move pause 999");
  EXPECT_THAT(bad.err, HasSubstr("MOVE_NOT_FOUND"));
  const testing::CliRun made = testing::RunTenurectl(
      daemon->grpc_address(), "move create --from from --dead-letters --rate 5 --max-in-flight 7");
  EXPECT_EQ(made.status, 0) << made.err;
  EXPECT_THAT(made.out,
              AllOf(ContainsRegex("to +from"), ContainsRegex("jobs per second +5"), ContainsRegex("max in flight +7")));
}

TEST_F(MoveDaemonTest, AKilledLeaderIsFollowedAndNoJobIsDoubledOrLost) {
  auto first = StartProcess();
  ASSERT_TRUE(Eventually(20, [&] {
    return Sql("select count(*) from tenure.leader where worker = 'lifecycle' and expires_at > now()") == "1";
  }));
  auto second = StartProcess();
  client::Client client = Connect(second->grpc_address());
  std::vector<client::JobSpec> specs(1000, client::JobSpec{.queue = "from", .kind = "k"});
  for (const auto& enqueued : client.EnqueueBatch(specs)) ASSERT_TRUE(enqueued.ok()) << enqueued.status();
  const auto move = client.CreateMove(
      {.from_queue = "from", .to_queue = "to", .source = client::MoveSource::kBacklog, .jobs_per_second = 100});
  ASSERT_EQ(move.status(), absl::OkStatus());
  ASSERT_TRUE(Eventually(20, [&] { return client.GetMove(move->id)->moved_jobs >= 100; }));
  first->Kill();
  ASSERT_TRUE(Eventually(60, [&] { return client.GetMove(move->id)->state == client::MoveState::kDone; }));
  EXPECT_EQ(client.GetMove(move->id)->moved_jobs, 1000);
  EXPECT_EQ(Sql("select count(*) || ' ' || count(distinct retry_of) from tenure.job"), "1000 1000");
}

}  // namespace
}  // namespace tenure::store

// What a queue's settings do to its jobs by themselves, on a real PostgreSQL: the time to start. Layer: tests.
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/status.h"
#include "tenure/client.h"
#include "tests/support/daemon.h"
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

class QueueRulesDaemonTest : public StoreTest {
 protected:
  std::unique_ptr<testing::TestDaemon> Start() {
    testing::TestDaemonOptions options;
    options.database_url = database_.url();
    return std::make_unique<testing::TestDaemon>(options);
  }
  static client::Client Connect(const std::string& address) {
    client::ClientOptions options;
    options.targets = {address};
    return *client::Client::Connect(options);
  }
};

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
  const testing::CliRun bad = testing::RunTenurectl(one->grpc_address(), "queue update slow --start-within 0s");
  EXPECT_NE(bad.status, 0);
  EXPECT_THAT(bad.err, HasSubstr("start_within"));
}

}  // namespace
}  // namespace tenure::store

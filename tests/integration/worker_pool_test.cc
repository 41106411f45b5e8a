// The C++ client library and its worker pool against the real daemon on a real PostgreSQL.
#include "tenure/worker_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/support/daemon.h"
#include "tests/support/running_pool.h"

namespace tenure::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::PoolTestOptions;
using testing::RunningPool;
using testing::TestDaemon;
using testing::TestDaemonOptions;
using testing::WaitForStop;

Client Connect(const std::vector<std::string>& targets) {
  ClientOptions options;
  options.targets = targets;
  auto client = Client::Connect(options);
  EXPECT_TRUE(client.ok()) << client.status();
  return *client;
}

// Something that happens on another thread, once.
class Event {
 public:
  void Set() {
    std::lock_guard lock(mutex_);
    set_ = true;
    changed_.notify_all();
  }
  bool Wait() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, seconds(30), [this] { return set_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool set_ = false;
};

// Counts up to a number that a test waits for.
class Countdown {
 public:
  explicit Countdown(int64_t from) : left_(from) {}
  void Down() {
    std::lock_guard lock(mutex_);
    if (--left_ == 0) done_.notify_all();
  }
  bool Wait() {
    std::unique_lock lock(mutex_);
    return done_.wait_for(lock, seconds(60), [this] { return left_ <= 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  int64_t left_;
};

class WorkerPoolOnDaemon : public ::testing::Test {
 protected:
  std::string Enqueue(const std::string& kind, const std::string& payload = {}) {
    JobSpec spec{.queue = "q", .kind = kind};
    spec.payload = Payload::Text(payload);
    auto enqueued = client_.Enqueue(spec);
    EXPECT_TRUE(enqueued.ok()) << enqueued.status();
    return enqueued.ok() ? enqueued->job_id : "";
  }
  Job Ended(const std::string& id) {
    auto job = client_.WaitForOutcome(id, {.timeout = seconds(30), .stop = {}});
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? *job : Job{};
  }
  Job Get(const std::string& id) {
    auto job = client_.Get(id);
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? *job : Job{};
  }

  TestDaemon daemon_;
  Client client_ = Connect({daemon_.grpc_address()});
  WorkerPoolOptions options_ = PoolTestOptions();
};

TEST_F(WorkerPoolOnDaemon, WorksEveryJobExactlyOnceInLargeBatches) {
  constexpr int kJobs = 5'000;
  std::vector<JobSpec> specs(kJobs, JobSpec{.queue = "q", .kind = "k"});
  for (int i = 0; i < kJobs; ++i) specs[static_cast<size_t>(i)].payload = Payload::Text(std::to_string(i));
  std::set<std::string> ids;
  for (const auto& result : client_.EnqueueBatch(specs)) {
    ASSERT_TRUE(result.ok()) << result.status();
    ids.insert(result->job_id);
  }
  ASSERT_EQ(ids.size(), static_cast<size_t>(kJobs));
  std::mutex mutex;
  std::multiset<std::string> ran;
  options_.slots = 4;
  options_.prefetch = 1'000;
  Countdown settled(kJobs);
  options_.hooks.settled = [&](const SettledEvent& event) {
    EXPECT_TRUE(event.status.ok()) << event.status;
    settled.Down();
  };
  WorkerPool pool(client_, options_);
  pool.Handle("k", [&](JobContext& job) -> Outcome {
    std::lock_guard lock(mutex);
    ran.insert(job.id());
    return {};
  });
  RunningPool running(pool);
  ASSERT_TRUE(settled.Wait());
  EXPECT_TRUE(running.Stop().ok());
  EXPECT_EQ(ran.size(), static_cast<size_t>(kJobs));
  for (const std::string& id : ids) ASSERT_EQ(ran.count(id), 1u);
  EXPECT_EQ(pool.Stats().completed, kJobs);
  EXPECT_LT(pool.Stats().settle_calls, kJobs / 2);
}

TEST_F(WorkerPoolOnDaemon, EachOutcomeIsRecorded) {
  const std::string complete = Enqueue("complete", "in");
  const std::string fail = Enqueue("fail");
  const std::string retry = Enqueue("retry");
  const std::string snooze = Enqueue("snooze");
  const std::string discard = Enqueue("discard");
  const std::string unknown = Enqueue("unknown");
  Countdown settled(7);
  options_.hooks.settled = [&](const SettledEvent&) { settled.Down(); };
  WorkerPool pool(client_, options_);
  pool.Handle("complete", [](JobContext& job) -> Outcome {
    job.AddFollowUp({.queue = "q", .kind = "follow-up"});
    return Complete{Payload::Text(job.payload().data + "-out")};
  });
  pool.Handle("follow-up", [](JobContext&) -> Outcome { return {}; });
  pool.Handle("fail",
              [](JobContext&) -> Outcome { throw std::runtime_error(std::string("bad \xff and NUL \0 in it", 20)); });
  pool.Handle("retry", [](JobContext&) -> Outcome { return RetryAfter{std::chrono::hours(1), "later"}; });
  pool.Handle("snooze", [](JobContext&) -> Outcome { return Snooze{std::chrono::hours(1)}; });
  pool.Handle("discard", [](JobContext&) -> Outcome { return Discard{"never"}; });
  RunningPool running(pool);
  ASSERT_TRUE(settled.Wait());
  EXPECT_TRUE(running.Stop().ok());

  const Job done = Ended(complete);
  EXPECT_EQ(done.state, JobState::kCompleted);
  ASSERT_TRUE(done.result.has_value());
  EXPECT_EQ(*done.result, Payload::Text("in-out"));
  const Job failed = Get(fail);
  EXPECT_EQ(failed.failures, 1);
  ASSERT_TRUE(failed.error.has_value());
  EXPECT_EQ(failed.error->message.substr(0, 4), "bad ");
  EXPECT_EQ(Get(retry).state, JobState::kScheduled);
  EXPECT_GT(*Get(retry).due_time, std::chrono::system_clock::now() + std::chrono::minutes(50));
  EXPECT_EQ(Get(snooze).snoozes, 1);
  EXPECT_EQ(Get(snooze).failures, 0);
  EXPECT_EQ(Ended(discard).state, JobState::kDiscarded);
  EXPECT_EQ(Get(unknown).snoozes, 1);
  EXPECT_EQ(pool.Stats().completed, 2);
}

TEST_F(WorkerPoolOnDaemon, LeasesOutliveTheirDurationWhileTheHandlerRuns) {
  const std::string id = Enqueue("slow");
  options_.lease = seconds(1);
  Event extended;
  WorkerPool pool(client_, options_);
  pool.Handle("slow", [&](JobContext& job) -> Outcome {
    // Three leases long; the deadline moves on and nobody takes the job away.
    const SteadyTime until = job.deadline() + seconds(2);
    std::mutex mutex;
    std::condition_variable_any stopped;
    std::unique_lock lock(mutex);
    stopped.wait_until(lock, job.stop_token(), until, [] { return false; });
    EXPECT_FALSE(job.stop_token().stop_requested());
    EXPECT_GT(job.deadline(), until - seconds(1));
    return {};
  });
  RunningPool running(pool);
  const Job job = Ended(id);
  EXPECT_TRUE(running.Stop().ok());
  EXPECT_EQ(job.state, JobState::kCompleted);
  EXPECT_EQ(job.attempt, 1);
  EXPECT_EQ(job.crashes, 0);
}

TEST_F(WorkerPoolOnDaemon, ACancelReachesTheHandlerThroughAnyReplica) {
  TestDaemonOptions second;
  second.database_url = daemon_.database_url();
  TestDaemon other(second);
  const std::string id = Enqueue("k");
  Event started, stopped;
  WorkerPool pool(client_, options_);
  pool.Handle("k", [&](JobContext& job) -> Outcome {
    started.Set();
    WaitForStop(job.stop_token());
    EXPECT_EQ(job.lease_state(), LeaseState::kCancelled);
    stopped.Set();
    return Cancelled{};
  });
  RunningPool running(pool);
  ASSERT_TRUE(started.Wait());
  auto cancelled = Connect({other.grpc_address()}).Cancel(id, "changed my mind");
  ASSERT_TRUE(cancelled.ok()) << cancelled.status();
  EXPECT_EQ(cancelled->previous_state, JobState::kLeased);
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(stopped.Wait());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(5));  // The first Extend would come after 10 s.
  EXPECT_TRUE(running.Stop().ok());
  EXPECT_EQ(Ended(id).state, JobState::kCancelled);
  EXPECT_EQ(pool.Stats().cancelled, 1);
}

TEST_F(WorkerPoolOnDaemon, ShutdownUnderLoadLeavesNothingToWaitForItsLease) {
  for (const auto& result : client_.EnqueueBatch(std::vector<JobSpec>(3'000, JobSpec{.queue = "q", .kind = "k"}))) {
    ASSERT_TRUE(result.ok()) << result.status();
  }
  options_.slots = 4;
  options_.prefetch = 500;
  Countdown some(200);
  WorkerPool pool(client_, options_);
  pool.Handle("k", [&](JobContext&) -> Outcome {
    some.Down();
    return {};
  });
  RunningPool running(pool);
  ASSERT_TRUE(some.Wait());
  EXPECT_TRUE(running.Stop().ok());
  JobFilter held;
  held.holder = pool.worker_id();
  int left = 0;
  for (const auto& job : client_.ListAll(held)) {
    ASSERT_TRUE(job.ok()) << job.status();
    ++left;
  }
  EXPECT_EQ(left, 0);
  // The rest is ready, with no budget spent.
  JobFilter ready;
  ready.queue = "q";
  for (const auto& job : client_.ListAll(ready, 1'000)) {
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(job->state, JobState::kReady);
    EXPECT_EQ(job->failures + job->crashes, 0);
  }
  const auto rest = pool.Drain();
  ASSERT_TRUE(rest.ok()) << rest.status();
  EXPECT_EQ(pool.Stats().completed, 3'000);
}

TEST_F(WorkerPoolOnDaemon, AnAbandonedHandlersJobComesBackOnlyAfterItsLease) {
  const std::string id = Enqueue("stubborn");
  options_.grace = milliseconds(1);
  options_.stop_wait = milliseconds(1);
  struct Shared {
    Event started, go, ended;
  };
  const auto shared = std::make_shared<Shared>();
  {
    WorkerPool pool(client_, options_);
    pool.Handle("stubborn", [shared](JobContext&) -> Outcome {
      shared->started.Set();
      EXPECT_TRUE(shared->go.Wait());
      shared->ended.Set();
      return {};
    });
    RunningPool running(pool);
    ASSERT_TRUE(shared->started.Wait());
    EXPECT_EQ(running.Stop().code(), absl::StatusCode::kDeadlineExceeded);
  }
  const Job job = Get(id);
  EXPECT_EQ(job.state, JobState::kScheduled);
  EXPECT_EQ(job.releases, 1);
  EXPECT_EQ(job.crashes, 0);
  EXPECT_GT(*job.due_time, std::chrono::system_clock::now() + seconds(15));
  shared->go.Set();
  ASSERT_TRUE(shared->ended.Wait());
}

TEST_F(WorkerPoolOnDaemon, GoesOnWhenOneOfItsReplicasStops) {
  auto second = std::make_unique<TestDaemon>(
      TestDaemonOptions{.database_url = daemon_.database_url(), .settings = {}, .set = {}});
  Client both = Connect({second->grpc_address(), daemon_.grpc_address()});
  Countdown first(50), all(100);
  WorkerPool pool(both, options_);
  pool.Handle("k", [&](JobContext&) -> Outcome {
    first.Down();
    all.Down();
    return {};
  });
  RunningPool running(pool);
  for (int i = 0; i < 50; ++i) Enqueue("k");
  ASSERT_TRUE(first.Wait());
  second->Stop();
  for (int i = 0; i < 50; ++i) Enqueue("k");
  ASSERT_TRUE(all.Wait());
  EXPECT_TRUE(running.Stop().ok());
  EXPECT_EQ(pool.Stats().completed, 100);
}

TEST_F(WorkerPoolOnDaemon, ASettleOutlivesTheRestartOfALoneDaemon) {
  const std::string address = daemon_.grpc_address();
  Event started, finish, refused;
  options_.hooks.error = [&](const PoolError& error) {
    if (error.where == "settle") refused.Set();
  };
  WorkerPool pool(client_, options_);
  pool.Handle("k", [&](JobContext&) -> Outcome {
    started.Set();
    finish.Wait();
    return Complete{Payload::Text("done")};
  });
  RunningPool running(pool);
  const std::string id = Enqueue("k");
  ASSERT_TRUE(started.Wait());
  daemon_.Stop();
  finish.Set();
  ASSERT_TRUE(refused.Wait()) << "nobody is there";
  TestDaemon again({.database_url = daemon_.database_url(), .settings = {{"grpc-listen", address}}, .set = {}});
  const Job job = Ended(id);
  EXPECT_EQ(job.state, JobState::kCompleted);
  EXPECT_EQ(job.attempt, 1);
  EXPECT_EQ(job.crashes, 0);
  EXPECT_TRUE(running.Stop().ok());
  EXPECT_EQ(pool.Stats().completed, 1);
}

TEST_F(WorkerPoolOnDaemon, PrimitivesMakeALoopOfOnesOwn) {
  const std::string id = Enqueue("k", "x");
  ClaimOptions claim{.worker_id = NewWorkerId(), .queues = {{"q"}}};
  claim.wait = seconds(10);
  claim.request_id = NewRequestId();
  auto claimed = client_.Claim(claim);
  ASSERT_TRUE(claimed.ok()) << claimed.status();
  ASSERT_EQ(claimed->jobs.size(), 1u);
  // The same request answers with the same lease.
  auto replay = client_.Claim(claim);
  ASSERT_TRUE(replay.ok()) << replay.status();
  EXPECT_TRUE(replay->replayed);
  ASSERT_EQ(replay->jobs.size(), 1u);
  EXPECT_EQ(replay->jobs[0].lease_token, claimed->jobs[0].lease_token);
  // Somebody else asks for it by name.
  const auto held = client_.ClaimNamed({id, "1-1-999"}, {.worker_id = "other", .queues = {}});
  ASSERT_EQ(held.size(), 2u);
  EXPECT_TRUE(HasReason(held[0].status(), reason::kLeaseHeld)) << held[0].status();
  EXPECT_EQ(ErrorMetadata(held[0].status())["holder"], claim.worker_id);
  EXPECT_FALSE(held[1].ok());

  const std::string token = claimed->jobs[0].lease_token;
  auto extended = client_.Extend({.lease_token = token, .duration = seconds(60), .progress = {}});
  ASSERT_TRUE(extended.ok()) << extended.status();
  EXPECT_GT(extended->lease_duration, seconds(55));
  auto settled = client_.Complete({.lease_token = token, .result = Payload::Json("{}"), .follow_ups = {}});
  ASSERT_TRUE(settled.ok()) << settled.status();
  EXPECT_EQ(settled->state, JobState::kCompleted);
  settled = client_.Complete({.lease_token = token, .result = {}, .follow_ups = {}});
  ASSERT_TRUE(settled.ok()) << settled.status();
  EXPECT_TRUE(settled->replayed);
  EXPECT_TRUE(HasReason(client_.Snooze({.lease_token = token, .delay = seconds(1)}).status(), reason::kAlreadySettled));
}

TEST_F(WorkerPoolOnDaemon, OperatorsCallsAnswer) {
  auto queue =
      client_.CreateQueue("orders", {.max_attempts = 3, .crash_budget = {}, .backoff = {}, .description = "paid"});
  ASSERT_TRUE(queue.ok()) << queue.status();
  EXPECT_EQ(queue->settings.max_attempts, 3);
  EXPECT_TRUE(HasReason(client_.CreateQueue("orders").status(), reason::kQueueExists));
  auto updated = client_.UpdateQueue(
      "orders", {.max_attempts = 5, .crash_budget = {}, .backoff = {}, .description = {}}, {"description"});
  ASSERT_TRUE(updated.ok()) << updated.status();
  EXPECT_EQ(updated->settings.max_attempts, 5);
  EXPECT_FALSE(updated->settings.description.has_value());
  ASSERT_TRUE(client_.PauseQueue("orders").ok());
  EXPECT_TRUE(client_.GetQueue("orders")->paused);
  ASSERT_TRUE(client_.ResumeQueue("orders").ok());
  EXPECT_FALSE(client_.GetQueue("orders")->paused);
  EXPECT_TRUE(HasReason(client_.GetQueue("nowhere").status(), reason::kQueueNotFound));
  auto queues = client_.ListQueues("ord");
  ASSERT_TRUE(queues.ok()) << queues.status();
  ASSERT_EQ(queues->queues.size(), 1u);
  EXPECT_EQ(queues->queues[0].name, "orders");
  auto servers = client_.ListServers();
  ASSERT_TRUE(servers.ok()) << servers.status();
  EXPECT_EQ(servers->size(), 1u);
  auto info = client_.GetServerInfo();
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_FALSE(info->postgres_version.empty());
  // They enter themselves after the daemon has begun to serve.
  const SteadyTime until = std::chrono::steady_clock::now() + seconds(30);
  auto background = client_.ListBackgroundWorkers();
  while (background.ok() && background->empty() && std::chrono::steady_clock::now() < until) {
    background = client_.ListBackgroundWorkers();
  }
  ASSERT_TRUE(background.ok()) << background.status();
  EXPECT_FALSE(background->empty());
  EXPECT_TRUE(client_.ListWorkers().ok());
}

}  // namespace
}  // namespace tenure::client

// How the worker pool ends: the order of shutdown, what is given back and how, signals. Against a fake daemon.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "tenure/worker_pool.h"
#include "tests/support/fake_tenured.h"
#include "tests/support/running_pool.h"

namespace tenure::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::FakeTenured;
using testing::PoolTestOptions;
using testing::RunningPool;
using testing::WaitForStop;

class PoolShutdown : public ::testing::Test {
 protected:
  std::string Settled(const std::string& id) {
    const auto settles = daemon_.job(id).settles;
    return settles.size() == 1 ? settles[0] : std::to_string(settles.size()) + " settles";
  }

  FakeTenured daemon_;
  Client client_ = Client::FromChannels({daemon_.channel()});
  WorkerPoolOptions options_ = PoolTestOptions();
};

TEST_F(PoolShutdown, AnIdlePoolEndsAtOnceAndLeavesNoLease) {
  WorkerPool pool(client_, options_);
  pool.Handle("k", [](JobContext&) -> Outcome { return {}; });
  RunningPool running(pool);
  ASSERT_TRUE(daemon_.Await([&] { return daemon_.inside("Claim") == 1; }));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(running.Stop().ok());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(3));
  EXPECT_EQ(daemon_.leased(), 0);
  // The poll that was ended is collected, by a claim that takes nothing of its own.
  const auto claims = daemon_.claims();
  ASSERT_EQ(claims.size(), 2u);
  EXPECT_EQ(claims[1].request_id(), claims[0].request_id());
  EXPECT_EQ(claims[1].reservations(0).min_priority(), 100);
}

TEST_F(PoolShutdown, WhatTheEndedPollBroughtIsCollectedAndGivenBack) {
  // The claim takes effect, its reply is lost, and then comes the stop.
  const std::string id = daemon_.Add("k");
  daemon_.LoseReplies("Claim", 1);
  WorkerPool pool(client_, options_);
  std::atomic<int> runs{0};
  pool.Handle("k", [&](JobContext&) -> Outcome {
    ++runs;
    return {};
  });
  RunningPool running(pool);
  ASSERT_TRUE(daemon_.Await([&] { return daemon_.calls("Claim") >= 1; }));
  EXPECT_TRUE(running.Stop().ok());
  EXPECT_EQ(daemon_.leased(), 0);
  // Whichever came first, the replay or the stop, the job was worked or released; it does not wait for its lease.
  EXPECT_EQ(Settled(id), runs == 1 ? "Complete" : "Release");
}

TEST_F(PoolShutdown, UnstartedJobsGoBackAtOnceAndRunningOnesMayFinish) {
  options_.slots = 1;
  options_.prefetch = 3;
  std::atomic<bool> go{false};
  WorkerPool pool(client_, options_);
  pool.Handle("k", [&](JobContext& job) -> Outcome {
    go.wait(false);
    EXPECT_FALSE(job.stop_token().stop_requested());
    return {};
  });
  const std::string first = daemon_.Add("k");
  std::vector<std::string> waiting;
  for (int i = 0; i < 3; ++i) waiting.push_back(daemon_.Add("k"));
  RunningPool running(pool);
  ASSERT_TRUE(daemon_.Await([&] { return pool.Stats().running == 1 && pool.Stats().waiting == 3; }));
  running.RequestStop();
  // While the handler still runs.
  ASSERT_TRUE(daemon_.Await([&] { return pool.Stats().released == 3; }));
  EXPECT_EQ(pool.Stats().running, 1);
  for (const std::string& id : waiting) {
    EXPECT_EQ(Settled(id), "Release");
    EXPECT_EQ(daemon_.job(id).delay, Duration::zero());
  }
  go = true;
  go.notify_all();
  EXPECT_TRUE(running.Join().ok());
  EXPECT_EQ(Settled(first), "Complete");
}

TEST_F(PoolShutdown, HeartbeatsGoOnUntilTheLastSettleIsAcknowledged) {
  daemon_.SetLease(milliseconds(300));
  const std::string id = daemon_.Add("k");
  daemon_.Hold("Complete");
  WorkerPool pool(client_, options_);
  std::atomic<bool> started{false};
  std::atomic<bool> go{false};
  pool.Handle("k", [&](JobContext&) -> Outcome {
    started = true;
    go.wait(false);
    return {};
  });
  RunningPool running(pool);
  ASSERT_TRUE(daemon_.Await([&] { return started.load(); }));
  running.RequestStop();
  const int before = daemon_.job(id).extends;
  ASSERT_TRUE(daemon_.Await([&] { return daemon_.job(id).extends >= before + 2; }));  // The handler runs.
  go = true;
  go.notify_all();
  ASSERT_TRUE(daemon_.Await([&] { return daemon_.inside("Complete") > 0; }));
  const int settling = daemon_.job(id).extends;
  ASSERT_TRUE(daemon_.Await([&] { return daemon_.job(id).extends >= settling + 2; }));  // The settle is unanswered.
  daemon_.LetGo("Complete");
  EXPECT_TRUE(running.Join().ok());
  EXPECT_EQ(Settled(id), "Complete");
}

TEST_F(PoolShutdown, AfterTheGraceHandlersAreStoppedAndTheirJobsGivenBack) {
  options_.grace = milliseconds(50);
  const std::string obeys = daemon_.Add("obeys");
  const std::string throws = daemon_.Add("throws");
  const std::string finishes = daemon_.Add("finishes");
  WorkerPool pool(client_, options_);
  std::atomic<int> started{0};
  pool.Handle("obeys", [&](JobContext& job) -> Outcome {
    ++started;
    WaitForStop(job.stop_token());
    EXPECT_EQ(job.lease_state(), LeaseState::kHeld);
    return Cancelled{};
  });
  pool.Handle("throws", [&](JobContext& job) -> Outcome {
    ++started;
    WaitForStop(job.stop_token());
    throw std::runtime_error("interrupted");
  });
  pool.Handle("finishes", [&](JobContext& job) -> Outcome {
    ++started;
    WaitForStop(job.stop_token());
    return Complete{};
  });
  RunningPool running(pool);
  ASSERT_TRUE(daemon_.Await([&] { return started == 3; }));
  EXPECT_TRUE(running.Stop().ok());
  EXPECT_EQ(Settled(obeys), "Release");
  EXPECT_EQ(Settled(throws), "Release");  // A deploy spends no attempt.
  EXPECT_EQ(Settled(finishes), "Complete");
  EXPECT_EQ(daemon_.job(obeys).delay, Duration::zero());
}

TEST_F(PoolShutdown, AHandlerThatDoesNotStopKeepsItsLeaseToTheEnd) {
  options_.grace = milliseconds(10);
  options_.stop_wait = milliseconds(50);
  const std::string id = daemon_.Add("stubborn");
  // The handler outlives the pool: what it uses must, too.
  struct Shared {
    std::atomic<bool> started{false}, go{false}, ended{false};
  };
  const auto shared = std::make_shared<Shared>();
  {
    WorkerPool pool(client_, options_);
    pool.Handle("stubborn", [shared](JobContext& job) -> Outcome {
      shared->started = true;
      shared->go.wait(false);
      job.ReportProgress(1, "late");
      shared->ended = true;
      return Complete{};
    });
    RunningPool running(pool);
    ASSERT_TRUE(daemon_.Await([&] { return shared->started.load(); }));
    const absl::Status status = running.Stop();
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    EXPECT_EQ(pool.Stats().abandoned, 1);
  }
  // Nothing else runs it before its lease would have ended: the release carries the rest as delay.
  EXPECT_EQ(Settled(id), "Release");
  EXPECT_GT(daemon_.job(id).delay, seconds(25));
  EXPECT_LE(daemon_.job(id).delay, seconds(30));
  shared->go = true;
  shared->go.notify_all();
  ASSERT_TRUE(daemon_.Await([&] { return shared->ended.load(); }));
  EXPECT_EQ(daemon_.calls("Complete"), 0);
}

TEST_F(PoolShutdown, SettlesThatAreNeverAnsweredDoNotHoldItUpForEver) {
  options_.flush_wait = milliseconds(100);
  daemon_.Add("k");
  daemon_.Hold("Complete");
  WorkerPool pool(client_, options_);
  pool.Handle("k", [](JobContext&) -> Outcome { return {}; });
  RunningPool running(pool);
  ASSERT_TRUE(daemon_.Await([&] { return daemon_.inside("Complete") == 1; }));
  const absl::Status status = running.Stop();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(status.message().find("1 jobs"), absl::string_view::npos) << status;
  daemon_.LetGo("Complete");
}

TEST_F(PoolShutdown, ALeaseThatIsLostMeanwhileIsNotReleased) {
  options_.grace = seconds(20);
  const std::string id = daemon_.Add("k");
  std::atomic<bool> started{false};
  WorkerPool pool(client_, options_);
  pool.Handle("k", [&](JobContext& job) -> Outcome {
    started = true;
    WaitForStop(job.stop_token());
    return Cancelled{};
  });
  RunningPool running(pool);
  ASSERT_TRUE(daemon_.Await([&] { return started.load(); }));
  running.RequestStop();
  daemon_.LoseLease(id);  // Notices are still heard.
  EXPECT_TRUE(running.Join().ok());
  EXPECT_EQ(daemon_.calls("Release"), 0);
}

TEST_F(PoolShutdown, APoolMayRunAgainButNotTwiceAtOnce) {
  WorkerPool pool(client_, options_);
  pool.Handle("k", [](JobContext&) -> Outcome { return {}; });
  for (int round = 0; round < 3; ++round) {
    RunningPool running(pool);
    const std::string id = daemon_.Add("k");
    ASSERT_TRUE(daemon_.Await([&] { return daemon_.job(id).ended; }));
    EXPECT_EQ(pool.Run({}).code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_TRUE(running.Stop().ok());
  }
  EXPECT_EQ(pool.Stats().completed, 3);
}

TEST_F(PoolShutdown, ASignalEndsItInOrderAndTheOldHandlerComesBack) {
  struct sigaction before {};
  ASSERT_EQ(sigaction(SIGTERM, nullptr, &before), 0);
  WorkerPool pool(client_, options_);
  pool.Handle("k", [](JobContext&) -> Outcome { return {}; });
  std::jthread signaller([&] {
    ASSERT_TRUE(daemon_.Await([&] { return daemon_.inside("Claim") == 1; }));
    // Two at once are refused; signals can stop only one.
    WorkerPool other(client_, options_);
    other.Handle("k", [](JobContext&) -> Outcome { return {}; });
    EXPECT_EQ(other.RunUntilSignal().code(), absl::StatusCode::kFailedPrecondition);
    ASSERT_EQ(kill(getpid(), SIGTERM), 0);
  });
  EXPECT_TRUE(pool.RunUntilSignal().ok());
  struct sigaction after {};
  ASSERT_EQ(sigaction(SIGTERM, nullptr, &after), 0);
  EXPECT_EQ(after.sa_handler, before.sa_handler);
}

TEST_F(PoolShutdown, RunInstallsNoSignalHandler) {
  struct sigaction before {};
  ASSERT_EQ(sigaction(SIGINT, nullptr, &before), 0);
  WorkerPool pool(client_, options_);
  pool.Handle("k", [](JobContext&) -> Outcome { return {}; });
  RunningPool running(pool);
  ASSERT_TRUE(daemon_.Await([&] { return daemon_.inside("Claim") == 1; }));
  struct sigaction during {};
  ASSERT_EQ(sigaction(SIGINT, nullptr, &during), 0);
  EXPECT_EQ(during.sa_handler, before.sa_handler);
  EXPECT_TRUE(running.Stop().ok());
}

// gRPC does not survive a fork: the test starts its own binary anew, with this variable set, and lets it be killed.
constexpr char kChildVariable[] = "TENURE_TEST_SECOND_SIGNAL_CHILD";

TEST_F(PoolShutdown, ASecondSignalEndsTheProcessAtOnce) {
  if (getenv(kChildVariable) != nullptr) {
    options_.grace = seconds(60);
    daemon_.Add("k");
    WorkerPool pool(client_, options_);
    pool.Handle("k", [&](JobContext& job) -> Outcome {
      // The first: the pool stops claiming and waits for this handler. Signals of a kind that are pending merge, so the
      // second must wait until the first was seen: the parked poll is collected then.
      daemon_.Await([&] { return daemon_.inside("Claim") == 1; });
      const size_t claims = daemon_.claims().size();
      kill(getpid(), SIGINT);
      daemon_.Await([&] { return daemon_.claims().size() > claims; });
      kill(getpid(), SIGINT);
      WaitForStop(job.stop_token());
      return {};
    });
    const absl::Status status = pool.RunUntilSignal();
    _exit(1);
  }
  ASSERT_EQ(setenv(kChildVariable, "1", 1), 0);
  // The child has this one test, whichever shard of the suite runs here.
  for (const char* shard : {"GTEST_TOTAL_SHARDS", "GTEST_SHARD_INDEX", "GTEST_SHARD_STATUS_FILE"}) unsetenv(shard);
  const pid_t child = fork();
  if (child == 0) {
    execl("/proc/self/exe", "test", "--gtest_filter=PoolShutdown.ASecondSignalEndsTheProcessAtOnce", nullptr);
    _exit(99);
  }
  unsetenv(kChildVariable);
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 130);
}

}  // namespace
}  // namespace tenure::client

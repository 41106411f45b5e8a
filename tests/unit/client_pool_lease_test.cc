// The worker pool and its leases: extends, cancellations, what is lost or runs out, progress. Against a fake daemon.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <vector>

#include "tenure/worker_pool.h"
#include "tests/support/fake_tenured.h"
#include "tests/support/running_pool.h"

namespace tenure::client {
namespace {

using std::chrono::milliseconds;
using testing::FakeTenured;
using testing::PoolTestOptions;
using testing::RunningPool;

class PoolLeases : public ::testing::Test {
 protected:
  FakeTenured daemon_;
  Client client_ = Client::FromChannels({daemon_.channel()});
  WorkerPoolOptions options_ = PoolTestOptions();
};

TEST_F(PoolLeases, LeasesAreExtendedWhileTheLastSettleIsUnanswered) {
  daemon_.SetLease(milliseconds(300));
  const std::string id = daemon_.Add("k");
  daemon_.Hold("Complete");
  WorkerPool pool(client_, options_);
  pool.Handle("k", [](JobContext&) -> Outcome { return {}; });
  RunningPool running(pool);
  ASSERT_TRUE(daemon_.Await([&] { return daemon_.inside("Complete") > 0 && daemon_.job(id).extends >= 3; }));
  daemon_.LetGo("Complete");
  ASSERT_TRUE(daemon_.Await([&] { return pool.Stats().completed == 1; }));
  EXPECT_TRUE(running.Stop().ok());
}

TEST_F(PoolLeases, ACancelNoticeStopsTheHandlerAndItsEndIsReported) {
  const std::string id = daemon_.Add("k");
  std::atomic<bool> started{false};
  std::atomic<int> lost_hooks{0};
  options_.hooks.lost = [&](const Job& job, LeaseState state, const absl::Status& why) {
    EXPECT_EQ(job.id, id);
    EXPECT_EQ(state, LeaseState::kCancelled);
    EXPECT_TRUE(HasReason(why, reason::kJobCancelled)) << why;
    ++lost_hooks;
  };
  WorkerPool pool(client_, options_);
  pool.Handle("k", [&](JobContext& job) -> Outcome {
    started = true;
    testing::WaitForStop(job.stop_token());
    EXPECT_EQ(job.lease_state(), LeaseState::kCancelled);
    return Cancelled{};
  });
  RunningPool running(pool);
  ASSERT_TRUE(daemon_.Await([&] { return started.load(); }));
  daemon_.Cancel(id);  // Leases last 30 s here: only the notice can tell.
  // The settle with the dead token tells the daemon that the handler has stopped.
  ASSERT_TRUE(daemon_.Await([&] { return pool.Stats().refused_settles == 1; }));
  EXPECT_TRUE(running.Stop().ok());
  EXPECT_EQ(daemon_.calls("Release"), 1);
  EXPECT_EQ(pool.Stats().cancelled, 1);
  EXPECT_EQ(lost_hooks, 1);
}

TEST_F(PoolLeases, ACancellationIsLearntFromAnExtendWithoutAnyNotice) {
  daemon_.SetLease(milliseconds(300));
  const std::string id = daemon_.Add("k");
  std::atomic<bool> started{false};
  WorkerPool pool(client_, options_);
  pool.Handle("k", [&](JobContext& job) -> Outcome {
    started = true;
    testing::WaitForStop(job.stop_token());
    return Cancelled{};
  });
  RunningPool running(pool);
  ASSERT_TRUE(daemon_.Await([&] { return started.load(); }));
  daemon_.Cancel(id, /*notify=*/false);
  ASSERT_TRUE(daemon_.Await([&] { return pool.Stats().refused_settles == 1; }));
  EXPECT_TRUE(running.Stop().ok());
  EXPECT_EQ(pool.Stats().cancelled, 1);
}

TEST_F(PoolLeases, AHandlerWhoseLeaseIsLostIsStoppedAndNothingIsSettled) {
  const std::string id = daemon_.Add("k");
  std::atomic<bool> started{false};
  WorkerPool pool(client_, options_);
  pool.Handle("k", [&](JobContext& job) -> Outcome {
    started = true;
    testing::WaitForStop(job.stop_token());
    return Complete{};
  });
  RunningPool running(pool);
  ASSERT_TRUE(daemon_.Await([&] { return started.load(); }));
  daemon_.LoseLease(id);
  ASSERT_TRUE(daemon_.Await([&] { return pool.Stats().lost == 1 && pool.Stats().running == 0; }));
  EXPECT_TRUE(running.Stop().ok());
  EXPECT_EQ(daemon_.calls("Complete"), 0);
}

TEST_F(PoolLeases, AfterAWholeLeaseWithoutExtendTheHandlerIsStoppedButItsSettleIsSent) {
  daemon_.SetLease(milliseconds(300));
  const std::string id = daemon_.Add("k");
  daemon_.FailNext("Extend", 14, "DATABASE_UNAVAILABLE", 100'000);
  WorkerPool pool(client_, options_);
  pool.Handle("k", [&](JobContext& job) -> Outcome {
    testing::WaitForStop(job.stop_token());
    EXPECT_EQ(job.lease_state(), LeaseState::kRunOut);
    return Complete{};
  });
  RunningPool running(pool);
  ASSERT_TRUE(daemon_.Await([&] { return pool.Stats().completed == 1; }));  // The token was still the current one.
  EXPECT_TRUE(running.Stop().ok());
  EXPECT_EQ(pool.Stats().run_out, 1);
  EXPECT_EQ(daemon_.job(id).settles, std::vector<std::string>{"Complete"});
}

TEST_F(PoolLeases, AnExtendThatFindsTheJobSettledByItsOwnHandlerStopsNothing) {
  daemon_.SetLease(std::chrono::seconds(2));
  const std::string id = daemon_.Add("k");
  daemon_.RefuseItem("Extend", id, 9, "ALREADY_SETTLED", 1000);
  WorkerPool pool(client_, options_);
  pool.Handle("k", [&](JobContext& job) -> Outcome {
    EXPECT_FALSE(job.lease_token().empty());
    // The transaction took its time: extends came in between.
    EXPECT_TRUE(daemon_.Await([&] { return job.lease_state() == LeaseState::kSettledElsewhere; }));
    EXPECT_FALSE(job.stop_token().stop_requested());
    return SettledElsewhere{};
  });
  RunningPool running(pool);
  ASSERT_TRUE(daemon_.Await([&] { return pool.Stats().settled_elsewhere == 1; }));
  EXPECT_TRUE(running.Stop().ok());
  EXPECT_TRUE(daemon_.job(id).settles.empty());
  EXPECT_EQ(pool.Stats().lost + pool.Stats().cancelled, 0);
}

TEST_F(PoolLeases, ProgressIsShownSoon) {
  const std::string id = daemon_.Add("k");
  WorkerPool pool(client_, options_);
  pool.Handle("k", [&](JobContext& job) -> Outcome {
    job.ReportProgress(0.25, "a quarter");
    EXPECT_TRUE(daemon_.Await([&] { return !daemon_.job(id).progress.empty(); }));
    return {};
  });
  RunningPool running(pool);
  ASSERT_TRUE(daemon_.Await([&] { return pool.Stats().completed == 1; }));
  EXPECT_TRUE(running.Stop().ok());
  EXPECT_EQ(daemon_.job(id).progress[0], "a quarter");
}

}  // namespace
}  // namespace tenure::client

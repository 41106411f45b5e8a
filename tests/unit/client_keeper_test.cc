// The lease keeper: extends in the background, notices what is lost, run out or cancelled. Against a fake daemon with
// short leases.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <vector>

#include "tenure/client.h"
#include "tenure/lease_keeper.h"
#include "tests/support/fake_tenured.h"

namespace tenure::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::FakeTenured;

// Short, yet long enough that a busy machine does not let it run out by itself.
constexpr Duration kLease = milliseconds(900);

class Keeper : public ::testing::Test {
 protected:
  Keeper() { daemon_.SetLease(kLease); }

  std::vector<ClaimedJob> Claim(int count) {
    for (int i = 0; i < count; ++i) daemon_.Add("k");
    auto claim = client_.Claim({.worker_id = "w", .queues = {{"q"}}, .max_jobs = count});
    EXPECT_TRUE(claim.ok()) << claim.status();
    EXPECT_EQ(claim->jobs.size(), static_cast<size_t>(count));
    return claim->jobs;
  }
  LeaseKeeperOptions Options() {
    LeaseKeeperOptions options;
    options.lease = kLease;
    options.progress_interval = milliseconds(20);
    options.on_change = [this](const std::shared_ptr<HeldLease>&, const absl::Status&) { ++changes_; };
    options.on_error = [this](const absl::Status&) { ++errors_; };
    return options;
  }

  FakeTenured daemon_;
  Client client_ = Client::FromChannels({daemon_.channel()});
  std::atomic<int> changes_{0}, errors_{0};
};

TEST_F(Keeper, ExtendsAllThatAreDueInOneCallAndStopsWhenForgotten) {
  LeaseKeeper keeper(client_, Options());
  std::vector<std::shared_ptr<HeldLease>> held;
  for (const ClaimedJob& job : Claim(50)) held.push_back(keeper.Hold(job));
  EXPECT_EQ(keeper.size(), 50u);
  const SteadyTime first_end = held[0]->end();
  ASSERT_TRUE(daemon_.Await([&] {
    return std::all_of(held.begin(), held.end(),
                       [&](const auto& lease) { return lease->end() > first_end + kLease / 2; });
  }));
  // Two rounds or so, not a call for each lease.
  EXPECT_LE(daemon_.calls("Extend"), 10);
  for (const auto& lease : held) {
    EXPECT_EQ(lease->state(), LeaseState::kHeld);
    EXPECT_FALSE(lease->stop_token().stop_requested());
    EXPECT_GT(lease->end(), first_end);
    keeper.Forget(lease);
    keeper.Forget(lease);
  }
  EXPECT_EQ(keeper.size(), 0u);
  EXPECT_EQ(changes_, 0);
}

TEST_F(Keeper, ALeaseThatTheDaemonDeclaresLostStopsItsHolder) {
  LeaseKeeper keeper(client_, Options());
  const auto jobs = Claim(2);
  const auto lost = keeper.Hold(jobs[0]);
  const auto kept = keeper.Hold(jobs[1]);
  daemon_.LoseLease(jobs[0].job.id);
  ASSERT_TRUE(daemon_.Await([&] { return lost->stop_token().stop_requested() && changes_ == 1; }));
  EXPECT_EQ(lost->state(), LeaseState::kLost);
  EXPECT_EQ(kept->state(), LeaseState::kHeld);
  EXPECT_EQ(keeper.size(), 1u);  // Extended no more.
}

TEST_F(Keeper, ACancelledJobStopsItsHolder) {
  LeaseKeeper keeper(client_, Options());
  const auto jobs = Claim(1);
  const auto lease = keeper.Hold(jobs[0]);
  daemon_.Cancel(jobs[0].job.id);
  ASSERT_TRUE(daemon_.Await([&] { return lease->stop_token().stop_requested(); }));
  EXPECT_EQ(lease->state(), LeaseState::kCancelled);
}

TEST_F(Keeper, AJobThatItsHandlerSettledElsewhereIsNotStopped) {
  LeaseKeeper keeper(client_, Options());
  const auto jobs = Claim(1);
  const auto lease = keeper.Hold(jobs[0]);
  daemon_.RefuseItem("Extend", jobs[0].job.id, 9, "ALREADY_SETTLED");
  ASSERT_TRUE(daemon_.Await([&] { return lease->state() == LeaseState::kSettledElsewhere && keeper.size() == 0; }));
  EXPECT_FALSE(lease->stop_token().stop_requested());
}

TEST_F(Keeper, ALockedRowIsTriedAgain) {
  LeaseKeeper keeper(client_, Options());
  const auto jobs = Claim(1);
  const auto lease = keeper.Hold(jobs[0]);
  daemon_.RefuseItem("Extend", jobs[0].job.id, 14, "JOB_LOCKED", 2);
  ASSERT_TRUE(daemon_.Await([&] { return daemon_.job(jobs[0].job.id).extends >= 2; }));
  EXPECT_EQ(changes_, 0);
}

TEST_F(Keeper, WithoutASuccessfulExtendTheHolderIsStoppedAWholeLeaseAfterTheLastWasSent) {
  daemon_.Hold("Extend");  // Calls hang: a replica that was stopped.
  const auto jobs = Claim(1);
  LeaseKeeper keeper(client_, Options());
  const auto lease = keeper.Hold(jobs[0]);
  ASSERT_TRUE(daemon_.Await([&] { return lease->stop_token().stop_requested(); }));
  const SteadyTime stopped = std::chrono::steady_clock::now();
  EXPECT_EQ(lease->state(), LeaseState::kRunOut);
  EXPECT_GE(stopped, jobs[0].sent + kLease);
  EXPECT_GE(daemon_.calls("Extend"), 2);  // One that hangs does not keep the next from being sent.
  // It is extended on: the token may still be the current one.
  daemon_.LetGo("Extend");
  ASSERT_TRUE(daemon_.Await([&] { return daemon_.job(jobs[0].job.id).extends >= 1; }));
  EXPECT_EQ(keeper.size(), 1u);
  EXPECT_EQ(changes_, 1);
}

TEST_F(Keeper, AReplicaThatHangsCostsNoLease) {
  FakeTenured hanging;
  hanging.Hold("Extend");
  Client both = Client::FromChannels({hanging.channel(), daemon_.channel()});
  const auto jobs = Claim(1);
  LeaseKeeper keeper(both, Options());
  const auto lease = keeper.Hold(jobs[0]);
  ASSERT_TRUE(daemon_.Await([&] { return daemon_.job(jobs[0].job.id).extends >= 3; }));
  EXPECT_EQ(lease->state(), LeaseState::kHeld);
  EXPECT_GE(hanging.calls("Extend"), 1);
}

TEST_F(Keeper, FailedCallsAreRepeatedAndReported) {
  daemon_.FailNext("Extend", 14, "DATABASE_UNAVAILABLE", 2);
  const auto jobs = Claim(1);
  LeaseKeeper keeper(client_, Options());
  const auto lease = keeper.Hold(jobs[0]);
  ASSERT_TRUE(daemon_.Await([&] { return daemon_.job(jobs[0].job.id).extends >= 1; }));
  EXPECT_EQ(lease->state(), LeaseState::kHeld);
  EXPECT_EQ(errors_, 2);
}

TEST_F(Keeper, ProgressTravelsSoonAndSurvivesAFailedCall) {
  daemon_.SetLease(seconds(60));
  LeaseKeeperOptions options = Options();
  options.lease = seconds(60);
  const auto jobs = Claim(1);
  LeaseKeeper keeper(client_, options);
  const auto lease = keeper.Hold(jobs[0]);
  daemon_.FailNext("Extend", 14, "", 1);
  keeper.SetProgress(lease, {0.5, "half way \xff"});
  ASSERT_TRUE(daemon_.Await([&] { return !daemon_.job(jobs[0].job.id).progress.empty(); }));
  EXPECT_EQ(daemon_.job(jobs[0].job.id).progress[0], "half way \xEF\xBF\xBD");
}

TEST_F(Keeper, AReportEndsTheCareOnce) {
  const auto jobs = Claim(1);
  LeaseKeeper keeper(client_, Options());
  const auto lease = keeper.Hold(jobs[0]);
  keeper.Report(lease, LeaseState::kCancelled, absl::CancelledError("notice"));
  keeper.Report(lease, LeaseState::kLost, absl::CancelledError("late"));
  EXPECT_EQ(lease->state(), LeaseState::kCancelled);
  EXPECT_TRUE(lease->stop_token().stop_requested());
  EXPECT_EQ(changes_, 1);
  EXPECT_EQ(keeper.size(), 0u);
}

TEST_F(Keeper, MayGoWhileACallIsUnderWay) {
  daemon_.Hold("Extend");
  const auto jobs = Claim(1);
  {
    LeaseKeeper keeper(client_, Options());
    keeper.Hold(jobs[0]);
    ASSERT_TRUE(daemon_.Await([&] { return daemon_.inside("Extend") > 0; }));
  }
  const int before = changes_;
  daemon_.LetGo("Extend");
  ASSERT_TRUE(daemon_.Await([&] { return daemon_.inside("Extend") == 0; }));
  EXPECT_EQ(changes_, before);
}

}  // namespace
}  // namespace tenure::client

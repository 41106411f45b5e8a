// ShardLeases on a clock that only the test moves. Layer: tests.
#include "server/background/shard_leases.h"

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/background/supervisor.h"
#include "server/base/status.h"
#include "tests/support/leader_store.h"
#include "tests/support/manual_clock.h"

namespace tenure::background {
namespace {

using store::ShardFence;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::LeaderStore;
using testing::ManualClock;

constexpr absl::Duration kLease = absl::Seconds(6);
constexpr absl::Duration kLook = absl::Milliseconds(500);

// Grants what the test says, and remembers what was given up.
class ShardStoreDouble : public LeaderStore {
 public:
  absl::StatusOr<std::vector<store::ShardLease>> LeaseShards(std::string_view, int32_t, absl::Duration) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++looks;
    changed_.notify_all();
    if (!away.ok()) return away;
    std::vector<store::ShardLease> leases;
    for (const ShardFence& fence : granted) leases.push_back({fence, kLease});
    return leases;
  }
  absl::Status GiveUpShard(const ShardFence& fence, int32_t, int shard, std::string_view error) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    given_up.push_back({shard, std::string(error)});
    // Three ranges in its place, of which the middle one is free.
    std::erase(granted, fence);
    granted.push_back({fence.worker, fence.first, shard - 1, fence.term});
    granted.push_back({fence.worker, shard + 1, fence.last, fence.term});
    changed_.notify_all();
    return absl::OkStatus();
  }
  absl::Status LeaveShards(std::string_view, int32_t replica) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    left.push_back(replica);
    changed_.notify_all();
    return absl::OkStatus();
  }
  absl::Status ReportShardRun(std::string_view worker, int32_t, const RunReport& report) override {
    return ReportRun(worker, report);
  }

  int looks = 0;
  absl::Status away;
  std::vector<ShardFence> granted;
  std::vector<std::pair<int, std::string>> given_up;
  std::vector<int32_t> left;
};

class ShardLeasesTest : public ::testing::Test {
 protected:
  ShardLeasesTest() { store_.granted = {{"w", 0, 1023, 3}}; }

  std::unique_ptr<ShardLeases> Start(int32_t replica = 7) {
    replica_ = replica;
    return std::make_unique<ShardLeases>(
        store_, clock_, metrics_, [this] { return replica_.load(); },
        ShardLeases::Options{.worker = "w",
                             .lease = kLease,
                             .interval = kLook,
                             .changed =
                                 [this](bool any, int64_t term) {
                                   store_.With([&] {
                                     ++changes_;
                                     any_ = any;
                                     term_ = term;
                                   });
                                 },
                             .failed =
                                 [this](const absl::Status& status, bool panic) {
                                   failures_.push_back(status);
                                   panics_ += panic ? 1 : 0;
                                 },
                             .asked = [](const absl::Status&) {}});
  }
  bool AwaitChanges(int count) {
    return store_.Await([&] { return changes_ == count; });
  }
  double Shards() { return metrics_.background_shards.Add({{"worker", "w"}}).Value(); }

  ManualClock clock_;
  ShardStoreDouble store_;
  Metrics metrics_;
  std::atomic<int32_t> replica_{0};
  int changes_ = 0;  // These three guarded by store_'s lock.
  bool any_ = false;
  int64_t term_ = 0;
  std::vector<absl::Status> failures_;
  int panics_ = 0;
};

TEST_F(ShardLeasesTest, HoldsWhatIsGrantedAndGivesItUpAtTheEnd) {
  auto leases = Start();
  ASSERT_TRUE(AwaitChanges(1));
  EXPECT_THAT(leases->Held(), ElementsAre(ShardFence{"w", 0, 1023, 3}));
  EXPECT_EQ(Shards(), 1024);
  EXPECT_TRUE(any_);
  EXPECT_EQ(term_, 3);
  leases.reset();
  EXPECT_THAT(store_.left, ElementsAre(7));
  EXPECT_EQ(Shards(), 0);
  EXPECT_FALSE(any_);
}

TEST_F(ShardLeasesTest, HoldsNothingBeforeTheReplicaIsRegistered) {
  auto leases = Start(0);
  ASSERT_TRUE(clock_.StepTo(kLook));
  ASSERT_TRUE(clock_.AwaitDeadline(kLook));
  EXPECT_TRUE(leases->Held().empty());
  store_.With([&] { EXPECT_EQ(store_.looks, 0); });
  replica_ = 7;
  ASSERT_TRUE(clock_.StepTo(kLook));
  ASSERT_TRUE(AwaitChanges(1));
  EXPECT_EQ(leases->Held().size(), 1u);
}

TEST_F(ShardLeasesTest, WhatIsNotRenewedIsHeldNoLongerThanItsLease) {
  auto leases = Start();
  ASSERT_TRUE(AwaitChanges(1));
  ASSERT_TRUE(clock_.AwaitDeadline(kLook));
  store_.With([&] { store_.away = absl::UnavailableError("away"); });
  for (int look = 0; look < 11; ++look) {
    ASSERT_TRUE(clock_.StepTo(kLook));
    EXPECT_EQ(leases->Held().size(), 1u) << look;
  }
  ASSERT_TRUE(clock_.StepTo(kLook));
  EXPECT_TRUE(leases->Held().empty()) << "the lease is over by this process's clock, whatever the thread does";
}

TEST_F(ShardLeasesTest, AShardThatThrowsIsGivenUpAloneAndCounted) {
  auto leases = Start();
  ASSERT_TRUE(AwaitChanges(1));
  const ShardFence all = leases->Held()[0];
  EXPECT_EQ(leases->RunShard(all, 3, [] { return absl::OkStatus(); }), absl::OkStatus());
  const absl::Status thrown = leases->RunShard(all, 17, []() -> absl::Status { throw std::runtime_error("no luck"); });
  EXPECT_EQ(thrown.code(), absl::StatusCode::kInternal);
  ASSERT_TRUE(AwaitChanges(2));
  EXPECT_THAT(leases->Held(), ElementsAre(ShardFence{"w", 0, 16, 3}, ShardFence{"w", 18, 1023, 3}));
  EXPECT_EQ(Shards(), 1023);
  store_.With([&] { EXPECT_THAT(store_.given_up, ElementsAre(std::pair(17, std::string("panic: no luck")))); });
  EXPECT_EQ(metrics_.background_panics.Add({{"worker", "w"}, {"shard", "17"}}).Value(), 1);
  EXPECT_EQ(panics_, 1);
  ASSERT_EQ(failures_.size(), 1u);
  EXPECT_THAT(std::string(failures_[0].message()), HasSubstr("no luck"));
}

TEST_F(ShardLeasesTest, AnErrorOfTheWorkGivesUpItsShardButNotOneOfTheDatabase) {
  auto leases = Start();
  ASSERT_TRUE(AwaitChanges(1));
  const ShardFence all = leases->Held()[0];
  EXPECT_TRUE(absl::IsUnavailable(leases->RunShard(all, 5, [] { return absl::UnavailableError("away"); })));
  EXPECT_TRUE(IsTermOver(leases->RunShard(all, 5, [] { return LeaderStore::TermOver(); })));
  store_.With([&] { EXPECT_TRUE(store_.given_up.empty()); });
  EXPECT_TRUE(absl::IsDeadlineExceeded(
      leases->RunShard(all, 5, [] { return absl::DeadlineExceededError("the statement took too long"); })));
  store_.With([&] { EXPECT_EQ(store_.given_up.size(), 1u); });
  EXPECT_EQ(panics_, 0);
}

class ShardedWorkerTest : public ShardLeasesTest {
 protected:
  // Runs `round` for each range held, as the reaper does.
  void Supervise(const std::function<absl::StatusOr<absl::Duration>(RunContext&, const ShardFence&)>& round) {
    class Rounds : public Worker {
     public:
      explicit Rounds(decltype(round) round) : round_(round) {}
      absl::Status Run(RunContext& context) override {
        return RunShardRounds(context, [&](const ShardFence& held) { return round_(context, held); });
      }

     private:
      const std::function<absl::StatusOr<absl::Duration>(RunContext&, const ShardFence&)> round_;
    };
    replica_ = 7;
    Dependencies dependencies;
    dependencies.store = &store_;
    dependencies.clock = &clock_;
    const WorkerEntry entry{
        .name = "w",
        .help = "",
        .leadership = Leadership::kOwnLeases,
        .tunables = {},
        .make = [round](const Dependencies&) -> std::unique_ptr<Worker> { return std::make_unique<Rounds>(round); }};
    supervisor_ = std::make_unique<Supervisor>(
        std::vector<WorkerEntry>{entry}, dependencies, metrics_, [this] { return replica_.load(); },
        SupervisorOptions{.lease = kLease, .acquire_interval = kLook});
    supervisor_->Start();
  }
  WorkerState State() { return supervisor_->States()[0]; }

  std::unique_ptr<Supervisor> supervisor_;
};

TEST_F(ShardedWorkerTest, RunsTheRangesThatAreHeldAndTheSiblingsOfAShardThatFails) {
  std::map<int, int> rounds;  // By first shard. Guarded by the store's lock.
  Supervise([&](RunContext& context, const ShardFence& held) -> absl::StatusOr<absl::Duration> {
    store_.With([&] { ++rounds[held.first]; });
    if (held.Covers(17)) {
      EXPECT_EQ(context.shards().RunShard(held, 17, []() -> absl::Status { throw 42; }).code(),
                absl::StatusCode::kInternal);
    }
    return absl::Milliseconds(300);
  });
  // The failure wakes the look for what is left, and that the loop.
  ASSERT_TRUE(store_.Await([&] { return rounds[18] == 1; }));
  store_.With([&] { EXPECT_EQ(rounds[0], 2); });
  EXPECT_TRUE(State().leading);
  EXPECT_EQ(State().panics, 1);
  EXPECT_EQ(State().restarts, 0) << "the worker as a whole goes on";
  ASSERT_TRUE(clock_.StepTo(absl::Milliseconds(300)));
  EXPECT_TRUE(store_.Await([&] { return rounds[18] == 2; }));
  EXPECT_EQ(supervisor_->Stop(Clock::TimePoint::max()), absl::OkStatus());
  store_.With([&] { EXPECT_THAT(store_.left, ElementsAre(7)); });
}

TEST_F(ShardedWorkerTest, ARoundThatIsRefusedForItsTermIsNoneAndTheRangesAreLookedAtAgain) {
  std::atomic<int> rounds = 0;
  Supervise([&](RunContext&, const ShardFence&) -> absl::StatusOr<absl::Duration> {
    if (++rounds == 1) {
      store_.With([&] { store_.granted = {{"w", 0, 511, 4}}; });
      return LeaderStore::TermOver();
    }
    return absl::Hours(1);
  });
  ASSERT_TRUE(store_.Await([&] { return !store_.reports["w"].empty(); }));
  EXPECT_EQ(State().runs, 1);
  // What is shown follows a moment after what is reported.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (State().term != 4 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  EXPECT_EQ(State().term, 4);
  EXPECT_EQ(State().last_error, "");
}

TEST_F(ShardedWorkerTest, AStopGivesTheShardsUpBeforeTheWorkerHasReturned) {
  std::atomic<bool> working = false, go_on = false;
  Supervise([&](RunContext&, const ShardFence&) -> absl::StatusOr<absl::Duration> {
    working = true;
    working.notify_all();
    go_on.wait(false);
    return absl::Hours(1);
  });
  working.wait(false);
  supervisor_->RequestStop();
  EXPECT_TRUE(store_.Await([&] { return store_.left.size() == 1; }));
  go_on = true;
  go_on.notify_all();
  EXPECT_EQ(supervisor_->Stop(Clock::TimePoint::max()), absl::OkStatus());
}

TEST_F(ShardedWorkerTest, AThrowOutsideOfAShardRestartsTheWorkerAndGivesUpAll) {
  std::atomic<int> rounds = 0;
  Supervise([&](RunContext&, const ShardFence&) -> absl::StatusOr<absl::Duration> {
    if (++rounds == 1) throw std::runtime_error("no luck");
    return absl::Hours(1);
  });
  ASSERT_TRUE(store_.Await([&] { return store_.left.size() == 1; }));
  ASSERT_TRUE(clock_.StepTo(absl::Seconds(1)));
  ASSERT_TRUE(store_.Await([&] { return !store_.reports["w"].empty() && rounds == 2; }));
  EXPECT_EQ(State().restarts, 1);
  EXPECT_EQ(metrics_.background_restarts.Add({{"worker", "w"}}).Value(), 1);
  EXPECT_EQ(metrics_.background_panics.Add({{"worker", "w"}, {"shard", "-"}}).Value(), 1);
}

}  // namespace
}  // namespace tenure::background

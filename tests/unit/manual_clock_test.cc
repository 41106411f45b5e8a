// The clock of the tests: it stands still until it is advanced, and wakes exactly those whose time has come.
#include "tests/support/manual_clock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <thread>
#include <vector>

namespace tenure::testing {
namespace {

// A thread that waits for `after` on `clock`, in the loop over a condition that Clock asks for.
class Sleeper {
 public:
  Sleeper(ManualClock& clock, absl::Duration after)
      : clock_(clock), deadline_(clock.Now() + absl::ToChronoNanoseconds(after)), thread_([this] { Run(); }) {}
  ~Sleeper() {
    Wake();
    thread_.join();
  }

  void Wake() {
    std::lock_guard lock(mutex_);
    woken_ = true;
    cv_.notify_all();
  }
  // Whether it ended because the deadline came.
  bool Reached() { return reached_.get_future().get(); }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    while (!woken_ && clock_.Now() < deadline_) clock_.WaitUntil(lock, cv_, deadline_);
    reached_.set_value(!woken_);
  }

  ManualClock& clock_;
  const Clock::TimePoint deadline_;
  std::mutex mutex_;
  std::condition_variable cv_;
  bool woken_ = false;
  std::promise<bool> reached_;
  std::thread thread_;
};

TEST(ManualClock, MovesOnlyWhenAdvanced) {
  ManualClock clock;
  const Clock::TimePoint start = clock.Now();
  EXPECT_EQ(clock.Now(), start);
  clock.Advance(absl::Milliseconds(1500));
  EXPECT_EQ(clock.Now() - start, std::chrono::milliseconds(1500));
}

TEST(ManualClock, ADeadlineThatHasComeDoesNotWait) {
  ManualClock clock;
  std::mutex mutex;
  std::condition_variable cv;
  std::unique_lock lock(mutex);
  clock.WaitUntil(lock, cv, clock.Now());
  EXPECT_TRUE(lock.owns_lock());
  EXPECT_EQ(clock.waiters(), 0);
}

TEST(ManualClock, AdvanceWakesThoseWhoseTimeHasComeAndNoOthers) {
  ManualClock clock;
  Sleeper soon(clock, absl::Seconds(1));
  Sleeper late(clock, absl::Seconds(10));
  ASSERT_TRUE(clock.AwaitWaiters(2));
  clock.Advance(absl::Milliseconds(999));
  EXPECT_EQ(clock.waiters(), 2);
  clock.Advance(absl::Milliseconds(1));
  EXPECT_TRUE(soon.Reached());
  EXPECT_EQ(clock.waiters(), 1);
  clock.Advance(absl::Seconds(9));
  EXPECT_TRUE(late.Reached());
}

TEST(ManualClock, ANotifiedWaiterLeavesBeforeItsDeadline) {
  ManualClock clock;
  Sleeper sleeper(clock, absl::Hours(1));
  ASSERT_TRUE(clock.AwaitWaiters(1));
  sleeper.Wake();
  EXPECT_FALSE(sleeper.Reached());
  EXPECT_TRUE(clock.AwaitWaiters(0));
}

TEST(ManualClock, WaitersMayDestroyTheirConditionVariableAtOnce) {
  ManualClock clock;
  for (int round = 0; round < 200; ++round) {
    std::vector<std::unique_ptr<Sleeper>> sleepers;
    for (int i = 0; i < 4; ++i) sleepers.push_back(std::make_unique<Sleeper>(clock, absl::Seconds(1)));
    ASSERT_TRUE(clock.AwaitWaiters(4));
    std::thread advance([&] { clock.Advance(absl::Seconds(1)); });
    for (auto& sleeper : sleepers) EXPECT_TRUE(sleeper->Reached());
    sleepers.clear();
    advance.join();
  }
}

}  // namespace
}  // namespace tenure::testing

// A clock that moves only when a test says so, so that no test sleeps. Thread-safe.
//
//   ManualClock clock;
//   Thing thing(clock);              // Waits on the clock in a thread of its own.
//   clock.AwaitWaiters(1);           // Until it does.
//   clock.Advance(absl::Seconds(3)); // Wakes it, if its deadline has come.
#pragma once

#include <condition_variable>
#include <list>
#include <mutex>

#include "absl/time/time.h"
#include "server/base/clock.h"

namespace tenure::testing {

class ManualClock : public Clock {
 public:
  ManualClock();  // Starts an hour after the steady clock's epoch, so that times before "now" can be expressed.
  ~ManualClock() override;

  TimePoint Now() const override;
  // Returns when `cv` is notified, when Advance has reached `deadline`, or at once if the deadline has come already.
  void WaitUntil(std::unique_lock<std::mutex>& lock, std::condition_variable& cv, TimePoint deadline) override;

  // Moves the time and wakes every waiter whose deadline has come; they run on by themselves. `by` must not be
  // negative.
  void Advance(absl::Duration by);

  // Blocks until exactly `count` threads wait whose deadlines are still to come. In real time it waits at most 30 s,
  // then it returns false: assert on the result.
  [[nodiscard]] bool AwaitWaiters(int count);
  int waiters() const;

  // Blocks until a thread waits for exactly the instant `from_now`, with the same bound. The test that names the
  // deadline it expects depends on no thread's speed. InfiniteDuration: a wait without end.
  [[nodiscard]] bool AwaitDeadline(absl::Duration from_now);
  // AwaitDeadline, then Advance to it: lets one timer fire.
  [[nodiscard]] bool StepTo(absl::Duration from_now);

 private:
  struct Waiter {
    std::mutex* mutex;
    std::condition_variable* cv;
    TimePoint deadline;
  };

  int PendingLocked() const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable left_;
  TimePoint now_;
  std::list<Waiter> waiters_;
  int waking_ = 0;  // Advance is notifying waiters: none of them may leave, and take its condition variable along.
};

}  // namespace tenure::testing

// See manual_clock.h. Thread-safe.
#include "tests/support/manual_clock.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <vector>

namespace tenure::testing {

ManualClock::ManualClock() : now_(std::chrono::hours(1)) {}

ManualClock::~ManualClock() = default;

Clock::TimePoint ManualClock::Now() const {
  std::lock_guard lock(mutex_);
  return now_;
}

int ManualClock::PendingLocked() const {
  return static_cast<int>(
      std::count_if(waiters_.begin(), waiters_.end(), [&](const Waiter& waiter) { return waiter.deadline > now_; }));
}

void ManualClock::WaitUntil(std::unique_lock<std::mutex>& lock, std::condition_variable& cv, TimePoint deadline) {
  std::list<Waiter>::iterator self;
  {
    std::lock_guard own(mutex_);
    if (deadline <= now_) return;
    self = waiters_.insert(waiters_.end(), {lock.mutex(), &cv, deadline});
    changed_.notify_all();
  }
  // No wake-up is lost here: Advance notifies with the waiter's mutex held, and this thread holds it until cv.wait lets
  // go of it.
  cv.wait(lock);
  // Advance may be about to lock the waiter's mutex, to notify a condition variable that the caller destroys once this
  // returns: the mutex is let go until Advance has finished.
  lock.unlock();
  {
    std::unique_lock own(mutex_);
    left_.wait(own, [&] { return waking_ == 0; });
    waiters_.erase(self);
    changed_.notify_all();
  }
  lock.lock();
}

void ManualClock::Advance(absl::Duration by) {
  std::vector<Waiter> due;
  {
    std::lock_guard own(mutex_);
    if (by < absl::ZeroDuration()) std::abort();
    now_ += absl::ToChronoNanoseconds(by);
    for (const Waiter& waiter : waiters_) {
      if (waiter.deadline <= now_) due.push_back(waiter);
    }
    ++waking_;
    changed_.notify_all();
  }
  for (const Waiter& waiter : due) {
    std::lock_guard theirs(*waiter.mutex);
    waiter.cv->notify_all();
  }
  std::lock_guard own(mutex_);
  --waking_;
  left_.notify_all();
}

bool ManualClock::AwaitWaiters(int count) {
  std::unique_lock own(mutex_);
  return changed_.wait_for(own, std::chrono::seconds(30), [&] { return PendingLocked() == count; });
}

bool ManualClock::AwaitDeadline(absl::Duration from_now) {
  std::unique_lock own(mutex_);
  const TimePoint deadline =
      from_now == absl::InfiniteDuration() ? TimePoint::max() : now_ + absl::ToChronoNanoseconds(from_now);
  return changed_.wait_for(own, std::chrono::seconds(30), [&] {
    return std::any_of(waiters_.begin(), waiters_.end(),
                       [&](const Waiter& waiter) { return waiter.deadline == deadline; });
  });
}

bool ManualClock::StepTo(absl::Duration from_now) {
  if (!AwaitDeadline(from_now)) return false;
  Advance(from_now);
  return true;
}

int ManualClock::waiters() const {
  std::lock_guard own(mutex_);
  return PendingLocked();
}

}  // namespace tenure::testing

// The process's monotonic clock, injected wherever something waits, so that tests advance time instead of sleeping.
// Durable times (due, expiry, history) are never taken from here: those are PostgreSQL's now(). Layer: base.
// Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace tenure {

class Clock {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  virtual ~Clock() = default;
  virtual TimePoint Now() const = 0;
  // Waits on `cv` until it is notified or `deadline` has come; spurious wake-ups are allowed, so call it in a loop over
  // the condition. `lock` must be held.
  virtual void WaitUntil(std::unique_lock<std::mutex>& lock, std::condition_variable& cv, TimePoint deadline) = 0;

  // std::chrono::steady_clock. Lives as long as the process.
  static Clock& Real();
};

}  // namespace tenure

// A wait that ends when its time has come, when it is notified, or when a stop is requested; on the injected clock, so
// that tests do not sleep. Layer: background. Thread-safe; one thread waits at a time.
#pragma once

#include <condition_variable>
#include <mutex>
#include <stop_token>

#include "server/base/clock.h"

namespace tenure::background {

class WakeUp {
 public:
  enum class Reason { kTime, kNotified, kStopped };

  explicit WakeUp(Clock& clock) : clock_(clock) {}
  WakeUp(const WakeUp&) = delete;
  WakeUp& operator=(const WakeUp&) = delete;

  // Ends the current wait, or the next one if nobody waits. Never blocks.
  void Notify();
  // kStopped wins over kNotified, and that over kTime.
  Reason WaitUntil(Clock::TimePoint deadline, const std::stop_token& stop);

 private:
  Clock& clock_;
  std::mutex mutex_;
  std::condition_variable cv_;
  bool notified_ = false;  // Guarded by mutex_.
};

}  // namespace tenure::background

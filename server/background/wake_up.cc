// WakeUp: see the header. Layer: background.
#include "server/background/wake_up.h"

namespace tenure::background {

void WakeUp::Notify() {
  const std::lock_guard<std::mutex> lock(mutex_);
  notified_ = true;
  cv_.notify_all();
}

WakeUp::Reason WakeUp::WaitUntil(Clock::TimePoint deadline, const std::stop_token& stop) {
  // Registered before the mutex is taken (a stop that was requested already calls it right here), and gone after it was
  // given back (its destructor waits for a call under way, which needs the mutex).
  const std::stop_callback on_stop(stop, [this] {
    const std::lock_guard<std::mutex> lock(mutex_);
    cv_.notify_all();
  });
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    if (stop.stop_requested()) return Reason::kStopped;
    if (notified_) {
      notified_ = false;
      return Reason::kNotified;
    }
    if (clock_.Now() >= deadline) return Reason::kTime;
    clock_.WaitUntil(lock, cv_, deadline);
  }
}

}  // namespace tenure::background

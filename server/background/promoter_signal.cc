// PromoterSignal: see the header. Layer: background.
#include "server/background/promoter_signal.h"

#include <algorithm>

namespace tenure::background {

void PromoterSignal::Scheduled(absl::Duration from_now) {
  // Bounded, so that no sum overflows: the promoter looks at everything more often than that anyway.
  const absl::Duration bounded = std::clamp(from_now, -absl::Hours(24 * 365), absl::Hours(24 * 365));
  const Clock::TimePoint due = clock_.Now() + absl::ToChronoNanoseconds(bounded);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (earliest_ && *earliest_ <= due) return;
    earliest_ = due;
  }
  wake_.Notify();
}

std::optional<Clock::TimePoint> PromoterSignal::Take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(earliest_, std::nullopt);
}

std::optional<Clock::TimePoint> PromoterSignal::earliest() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return earliest_;
}

bool PromoterSignal::WaitUntil(Clock::TimePoint planned, const std::stop_token& stop) {
  while (true) {
    const std::optional<Clock::TimePoint> told = earliest();
    switch (wake_.WaitUntil(told ? std::min(*told, planned) : planned, stop)) {
      case WakeUp::Reason::kStopped:
        return false;
      case WakeUp::Reason::kTime:
        return true;
      case WakeUp::Reason::kNotified:
        break;
    }
  }
}

}  // namespace tenure::background

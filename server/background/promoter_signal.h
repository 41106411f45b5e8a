// How the engine tells the promoter of jobs that were scheduled, here or elsewhere. Layer: background. Thread-safe;
// never blocks the caller. It remembers no more than the earliest due time since the promoter last looked, so it may be
// told at any rate, also while another replica leads the promoter.
#pragma once

#include <mutex>
#include <optional>

#include "absl/time/time.h"
#include "server/background/wake_up.h"
#include "server/base/clock.h"

namespace tenure::background {

class PromoterSignal {
 public:
  explicit PromoterSignal(Clock& clock) : clock_(clock), wake_(clock) {}

  // Jobs that are committed are due `from_now` (negative: were due before). Call it after their commit is known.
  void Scheduled(absl::Duration from_now);

  // The earliest due time told since the last Take.
  std::optional<Clock::TimePoint> Take();
  // Waits until `planned`, or until an earlier due time that was told. False if stopped.
  bool WaitUntil(Clock::TimePoint planned, const std::stop_token& stop);

 private:
  std::optional<Clock::TimePoint> earliest() const;

  Clock& clock_;
  WakeUp wake_;
  mutable std::mutex mutex_;
  std::optional<Clock::TimePoint> earliest_;  // Guarded by mutex_.
};

}  // namespace tenure::background

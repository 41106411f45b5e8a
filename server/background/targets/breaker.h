// A circuit breaker for one target: after some failures in a row nothing is sent for a while, then one try at a time,
// until one succeeds. Layer: background/targets. Not thread-safe. Time is the injected clock's.
#pragma once

#include <algorithm>

#include "absl/time/time.h"
#include "server/base/clock.h"

namespace tenure::background::targets {

class Breaker {
 public:
  static constexpr int kFailures = 5;
  static constexpr absl::Duration kFirstPause = absl::Seconds(1);
  static constexpr absl::Duration kLongestPause = absl::Minutes(1);

  // How many requests may be started now, given that `running` are under way and `most` may be.
  int Room(Clock::TimePoint now, int running, int most) const {
    if (!open()) return std::max(0, most - running);
    return now >= retry_at_ && running == 0 ? 1 : 0;
  }
  bool open() const { return failures_ >= kFailures; }
  // When it lets one through, if it is open.
  Clock::TimePoint retry_at() const { return retry_at_; }

  void Succeeded() {
    failures_ = 0;
    pause_ = kFirstPause;
  }
  void Failed(Clock::TimePoint now) {
    const bool was_open = open();
    ++failures_;
    if (!open()) return;
    // One that was under way when the breaker opened says nothing new: only a try that it let through makes the pause
    // longer.
    if (was_open && now < retry_at_) return;
    retry_at_ = now + absl::ToChronoNanoseconds(pause_);
    pause_ = std::min(pause_ * 2, kLongestPause);
  }

 private:
  int failures_ = 0;  // In a row.
  absl::Duration pause_ = kFirstPause;
  Clock::TimePoint retry_at_;
};

}  // namespace tenure::background::targets

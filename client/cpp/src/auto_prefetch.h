// How many jobs a pool claims beyond its slots when nobody said how many: as many as its slots work off within a
// moment. Short jobs are then claimed in large, few calls, and a long one is never claimed before a slot is free.
// Layer: client. Not thread-safe: the pool guards it.
#pragma once

#include <algorithm>
#include <chrono>

#include "tenure/types.h"

namespace tenure::client::internal {

class AutoPrefetch {
 public:
  // What is claimed ahead should have started within this time, or a tenth of the lease if that is shorter.
  static constexpr Duration kHorizon = std::chrono::milliseconds(100);
  static constexpr int kMost = 4'000;

  AutoPrefetch(int slots, Duration lease) : slots_(slots), horizon_(std::min<Duration>(kHorizon, lease / 10)) {}

  // A handler has run for so long. What is slower than usual counts at once, what is faster little by little: a pool
  // that holds too little is a little slower, one that holds too much keeps jobs from others.
  void Ran(Duration time) {
    time += kOverhead;
    typical_ += (time - typical_) / (time > typical_ ? 2 : 16);
    if (!known_) typical_ = time;
    known_ = true;
  }
  // Zero until a handler has run.
  int size() const {
    if (!known_) return 0;
    const auto in_time = slots_ * (horizon_ / std::max<Duration>(typical_, kOverhead));
    return static_cast<int>(std::min<int64_t>(in_time, kMost));
  }

 private:
  // Of one job beside its handler: what no-op handlers cost.
  static constexpr Duration kOverhead = std::chrono::microseconds(50);

  const int64_t slots_;
  const Duration horizon_;
  Duration typical_{};
  bool known_ = false;
};

}  // namespace tenure::client::internal

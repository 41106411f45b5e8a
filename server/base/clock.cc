#include "server/base/clock.h"

namespace tenure {
namespace {

class RealClock : public Clock {
 public:
  TimePoint Now() const override { return std::chrono::steady_clock::now(); }
  void WaitUntil(std::unique_lock<std::mutex>& lock, std::condition_variable& cv, TimePoint deadline) override {
    if (deadline == TimePoint::max()) {
      cv.wait(lock);
    } else {
      cv.wait_until(lock, deadline);
    }
  }
};

}  // namespace

Clock& Clock::Real() {
  static RealClock* clock = new RealClock;  // Never destroyed: threads may outlive static destruction.
  return *clock;
}

}  // namespace tenure

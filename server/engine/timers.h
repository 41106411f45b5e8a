// One thread that runs short functions at their times: ends of long polls, retries of the slow lane, leases to look at.
// Layer: engine. Thread-safe. A function must not block.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "server/base/clock.h"

namespace tenure::engine {

class Timers {
 public:
  using Id = uint64_t;

  explicit Timers(Clock& clock);
  ~Timers();  // Stop().

  Id At(Clock::TimePoint when, std::function<void()> run);
  Id After(Clock::Duration delay, std::function<void()> run) { return At(clock_.Now() + delay, std::move(run)); }
  // Does nothing if it has run or is running.
  void Cancel(Id id);
  // Drops what has not run yet.
  void Stop();

  Clock& clock() { return clock_; }

 private:
  void Loop();

  using Entries = std::multimap<Clock::TimePoint, std::pair<Id, std::function<void()>>>;
  Clock& clock_;
  std::mutex mu_;
  std::condition_variable cv_;
  Entries entries_;
  std::unordered_map<Id, Entries::iterator> by_id_;
  Id next_id_ = 1;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tenure::engine

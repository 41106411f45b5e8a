// Waiting for what no signal tells. Layer: tests. Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace tenure::testing {

// Looks again and again, every few milliseconds. True once `holds` does, false if it does not within `seconds`.
template <typename Fn>
bool Eventually(double seconds, Fn holds) {
  using SteadyClock = std::chrono::steady_clock;
  const auto until =
      SteadyClock::now() + std::chrono::duration_cast<SteadyClock::duration>(std::chrono::duration<double>(seconds));
  std::mutex mu;
  std::condition_variable never;
  std::unique_lock<std::mutex> lock(mu);
  while (!holds()) {
    if (SteadyClock::now() >= until) return holds();
    never.wait_for(lock, std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace tenure::testing

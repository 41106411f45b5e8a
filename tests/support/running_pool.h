// Runs a WorkerPool on a thread of its own for the length of a test. Not thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

#include "tenure/worker_pool.h"

namespace tenure::testing {

class RunningPool {
 public:
  explicit RunningPool(client::WorkerPool& pool)
      : thread_([this, &pool](std::stop_token stop) { status_ = pool.Run(std::move(stop)); }) {}

  // Stops it and returns what Run returned.
  absl::Status Stop() {
    thread_.request_stop();
    return Join();
  }
  void RequestStop() { thread_.request_stop(); }
  absl::Status Join() {
    if (thread_.joinable()) thread_.join();
    return status_;
  }

 private:
  absl::Status status_;
  std::jthread thread_;  // Last: joined before the status goes.
};

// Waits for a stop request, as a handler does that has nothing else to watch.
inline void WaitForStop(std::stop_token stop) {
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  stopped.wait(lock, std::move(stop), [] { return false; });
}

// Options for a pool on queue "q" that shuts down fast and keeps quiet.
inline client::WorkerPoolOptions PoolTestOptions() {
  client::WorkerPoolOptions options;
  options.queues = {{"q"}};
  options.slots = 8;
  options.prefetch = 0;
  options.logger = [](client::LogLevel, std::string_view) {};
  return options;
}

}  // namespace tenure::testing

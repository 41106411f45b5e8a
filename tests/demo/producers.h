// The demo's two producers: threads, each with a Client and so a connection of its own. Layer: tests. Thread-safe.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"

namespace tenure::demo {

inline constexpr int kProducers = 2;
inline constexpr int kBatch = 100;   // Jobs an Enqueue call.
inline constexpr int kWindow = 400;  // Jobs in flight: accepted and not completed.

class Producers {
 public:
  // Enqueues `jobs` jobs in all. At most kWindow of them are in flight at any time, as told by NoteCompleted: otherwise
  // the time from enqueue to start would only tell how long the backlog was. `done` is called once, on a thread of the
  // producers, when all have ended.
  Producers(std::string server, int jobs, std::function<void()> done);
  // Stops and joins them.
  ~Producers();

  void NoteCompleted(int64_t jobs);
  void Stop();

  int64_t accepted() const { return accepted_count_; }
  // When the first Enqueue call left (NowNanos); 0 before.
  int64_t first_sent() const { return first_sent_; }
  // After `done`: the first error, and the ids of all jobs that were accepted.
  absl::Status status() const;
  std::vector<std::string> TakeAccepted();

 private:
  void Produce(int producer, int jobs);
  absl::Status EnqueueAll(int producer, int jobs);
  // Waits for room for `jobs` more; false when stopped.
  bool AwaitRoom(int jobs);

  const std::string server_;
  const std::function<void()> done_;
  std::stop_source stop_;
  std::atomic<int64_t> accepted_count_{0};
  std::atomic<int64_t> first_sent_{0};
  mutable std::mutex mutex_;
  std::condition_variable_any room_;
  // Guarded by mutex_.
  int64_t in_flight_ = 0;
  int running_ = kProducers;
  absl::Status status_;
  std::vector<std::string> accepted_;
  std::vector<std::jthread> threads_;
};

}  // namespace tenure::demo

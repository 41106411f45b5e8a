// Runs the selected background workers, each on a thread of its own, and keeps them running: takes the worker's leader
// lease, builds it, runs it, and starts it anew however it ended. Nothing that happens to one worker touches its
// siblings or the RPCs; only what ends the process (a segmentation fault, memory that ran out) ends them all. Layer:
// background. Thread-safe.
//
// How a run ends, and what follows:
//   it threw (anything, on any of its threads)   a panic: counted; the lease is released; restart after a pause
//   it returned, OK or an error                   the lease is released; restart after a pause
//   its lease was lost                            restart at once, which means: try to get the lease again
//   Stop was called                               the lease is released, so that another replica takes over at once
// A worker with leases by shard (Leadership::kOwnLeases) runs on every replica; what is said of the lease holds for all
// the shards that this replica has. Only a failure of one shard's work costs that shard alone (shard_leases.h).
// Pauses grow from one run to the next: 1 s, 5 s, 30 s, 2 min, and begin at 1 s again after a run of 5 minutes.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/background/worker.h"
#include "server/base/clock.h"
#include "server/base/metrics.h"

namespace tenure::background {

struct SupervisorOptions {
  // How long a leader that vanished blocks its successor. Renewed at a third.
  absl::Duration lease = absl::Seconds(6);
  // How often a replica that does not lead looks whether it can.
  absl::Duration acquire_interval = absl::Milliseconds(500);
};

// How one selected worker stands in this process.
struct WorkerState {
  std::string name;
  bool needed_for_liveness = false;
  bool leading = false;    // This process leads it, or holds some of its shards.
  int64_t term = 0;        // By shard: the highest.
  int64_t runs = 0;        // Rounds, in this process.
  int64_t restarts = 0;    // After a panic, an error or a return, in this process.
  int64_t panics = 0;      // Of single shards too.
  std::string last_error;  // Of the last round or run; empty if it went well.
};

class Supervisor {
 public:
  // `replica` tells the number under which this process is registered, 0 while it is not: no lease is taken before
  // that. Everything given by reference, and what `dependencies` points to, outlives this object. Starts nothing yet.
  Supervisor(std::vector<WorkerEntry> workers, const Dependencies& dependencies, Metrics& metrics,
             std::function<int32_t()> replica, SupervisorOptions options = {});
  // Stops and joins, however long that takes.
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Starts the threads. Once.
  void Start();
  // Tells all workers to stop; returns at once. Idempotent.
  void RequestStop();
  // RequestStop, then waits for all of them, their leases released. DEADLINE_EXCEEDED that names those still running at
  // `deadline`: they go on until they notice. Idempotent.
  absl::Status Stop(Clock::TimePoint deadline);

  // Of the selected workers, in the registry's order.
  std::vector<WorkerState> States() const;

 private:
  class Slot;

  Clock& clock_;
  std::mutex mutex_;
  std::condition_variable ended_cv_;
  int running_ = 0;  // Guarded by mutex_.
  struct Watch;
  std::unique_ptr<Watch> watch_;
  std::vector<std::unique_ptr<Slot>> slots_;
};

}  // namespace tenure::background

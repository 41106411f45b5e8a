// What the contestants of scenario held-transaction share: a steady load, and the phases before, while and after a
// transaction is held open. Layer: tests (benchmark). SteadyLoad is used from one thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scenario.h"

namespace tenure::bench {

// Producers that keep a bounded number of jobs waiting, or a rate.
class SteadyLoad {
 public:
  // `rate` jobs a second, 0: as many as are completed. `completed` tells how many are, from any thread.
  SteadyLoad(double rate, std::function<int64_t()> completed);
  // Finish.
  ~SteadyLoad();

  // Starts so many threads, which call `enqueue` for `per_call` jobs each.
  void Start(int threads, int64_t per_call, const std::function<absl::Status(int64_t jobs)>& enqueue);
  // Ends them; the first error that one met. Idempotent.
  absl::Status Finish();

  // How many jobs are acknowledged. All of them once Finish has returned.
  int64_t enqueued() const { return enqueued_; }

 private:
  absl::Status Produce(int64_t per_call, const std::function<absl::Status(int64_t jobs)>& enqueue);
  // True while the load is where it should be.
  bool Enough() const;

  const double rate_;
  const std::function<int64_t()> completed_;
  const std::chrono::steady_clock::time_point start_;
  std::atomic<int64_t> asked_{0}, enqueued_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;    // Guarded by mutex_.
  absl::Status status_;  // Guarded by mutex_.
  std::vector<std::jthread> threads_;
};

enum class HeldKind {
  kReading,  // A snapshot, as of a long report or a dump.
  kWriting,  // A transaction id, with a row written into a table that has nothing to do with jobs.
};

// Measures the throughput before, while and after a transaction is held open in the database, which `completed` tells.
// `half_time` is called in the middle of the hold. `table` is the one whose dead rows are told.
// Figures: jobs_per_second_before, _during, _during_last_quarter, _after, during_to_before, after_to_before,
// dead_tuples, dead_tuples_after.
absl::StatusOr<Figures> HoldTransaction(RunContext& run, const std::string& database_url, const std::string& table,
                                        HeldKind kind, const std::function<int64_t()>& completed,
                                        const std::function<absl::Status()>& half_time);

}  // namespace tenure::bench

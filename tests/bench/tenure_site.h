// Tenure as a contestant: `tenured serve` as a process of its own on a fresh database, and clients of it in this
// process. Layer: tests (benchmark). A site is used from one thread; its client from any.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scenario.h"
#include "tenure/client.h"
#include "tenure/worker_pool.h"
#include "tests/demo/child.h"

namespace tenure::bench {

inline constexpr char kQueue[] = "bench";
inline constexpr char kKind[] = "noop";
inline constexpr size_t kPayloadBytes = 100;

// A payload of kPayloadBytes that begins with `text`.
std::string PayloadOf(const std::string& text = {});
client::JobSpec NoopJob(const std::string& queue = kQueue);

// A `tenured serve` on a database. Stopped, by force if need be, when it goes.
class Daemon {
 public:
  // Returns once it is ready. Errors carry the end of its log. Call it on the main thread: the daemon dies with the
  // thread that made it.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const RunContext& run, const std::string& database_url);
  ~Daemon();

  const std::string& address() const { return address_; }
  pid_t pid() const { return child_->pid(); }
  // SIGTERM, and waits for its end; an error if that was not clean. Idempotent.
  absl::Status Stop();

 private:
  Daemon(std::unique_ptr<demo::Child> child, std::string log) : child_(std::move(child)), log_(std::move(log)) {}
  absl::Status AwaitReady();

  const std::unique_ptr<demo::Child> child_;
  const std::string log_;
  std::string address_;
  bool stopped_ = false;
};

class TenureSite {
 public:
  // A fresh database with a daemon on it; `database_url` not empty: that one, which is then kept.
  static absl::StatusOr<std::unique_ptr<TenureSite>> Start(const RunContext& run, std::string database_url = {});
  // A client with a connection of its own to a daemon.
  static absl::StatusOr<client::Client> Connect(const Daemon& daemon);

  client::Client& client() { return *client_; }
  Daemon& daemon() { return *daemon_; }
  const std::string& database_url() const { return database_url_; }

  // Enqueues no-op jobs, untimed.
  absl::Status Fill(int64_t jobs);
  // Stops the daemon, checks that exactly so many jobs have completed and none is left, and drops the database.
  absl::Status Finish(int64_t completed);

 private:
  explicit TenureSite(const RunContext& run) : run_(run) {}

  const RunContext& run_;
  std::string database_url_;
  std::unique_ptr<Daemon> daemon_;
  std::unique_ptr<client::Client> client_;
};

// Enqueues `jobs` no-op jobs by `callers` threads, `per_call` each; spread over `queues`, each call over as many of
// them as it has jobs. Returns when all are acknowledged.
absl::Status EnqueueMany(client::Client& client, int64_t jobs, int callers, int per_call,
                         const std::function<void(int64_t acknowledged)>& progress = {},
                         const std::vector<std::string>& queues = {kQueue});

// The times of calls made one by one, in milliseconds.
struct CallTimes {
  std::vector<double> enqueue, claim, complete;
};
// Enqueues a job in `queue`, claims one from it and completes that, again and again until `done` says so; the first
// `warm_up` times are not counted. DATA_LOSS if a claim gets no job.
absl::StatusOr<CallTimes> TimeCalls(client::Client& client, const std::string& queue, int64_t warm_up,
                                    const std::function<bool(int64_t counted)>& done);

// Worker pools of no-op handlers, each on a thread and a connection of its own, that count what was settled.
class Pools {
 public:
  // Does not start them.
  static absl::StatusOr<std::unique_ptr<Pools>> Make(const RunContext& run, const Daemon& daemon,
                                                     const std::vector<std::vector<std::string>>& queues_of_each);
  ~Pools();

  // Before Start: called for each job when its handler begins.
  std::function<void(client::JobContext&)> on_start;

  void Start();
  int64_t completed() const { return completed_.load(std::memory_order_relaxed); }
  // Waits until so many jobs are completed. DEADLINE_EXCEEDED if nothing was completed for a minute.
  absl::Status AwaitCompleted(int64_t jobs, Progress& progress);
  // Idempotent. The first error that a pool ended with.
  absl::Status Stop();

 private:
  Pools() = default;

  std::vector<std::unique_ptr<client::WorkerPool>> pools_;
  std::vector<std::jthread> threads_;
  std::stop_source stop_;
  std::atomic<int64_t> completed_{0};
  std::atomic<int64_t> awaited_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  absl::Status status_;      // Guarded by mutex_.
  absl::Status last_error_;  // Guarded by mutex_; what a pool is retrying.
};

}  // namespace tenure::bench

// WorkerPool: claims jobs, runs your handlers, keeps their leases, settles them. Public header of tenure::client.
// Thread-safety: register handlers, middleware and options first; then Run on one thread; Stats and worker_id from any
// thread.
//
//   WorkerPool pool(client, {.queues = {{"mail"}}, .slots = 32});
//   pool.Handle("send", [](JobContext& job) -> Outcome { Send(job.payload().data); return Complete{}; });
//   return pool.RunUntilSignal().ok() ? 0 : 1;
//
// How it works. Free slots drive claims, never a timer: one long poll is under way while slots are free. Leases are
// extended in the background until the last settle is acknowledged, also during shutdown. When a lease is lost, run
// out, or its job cancelled, the handler's stop_token is triggered; the pool still tries to settle where that can
// succeed. Settles are batched: while one call is in flight the next gathers; nothing is delayed when idle. A settle is
// repeated until it is answered or the lease is lost.
//
// Delivery is at least once: a handler may run again after a crash of its process. Pass effect_key() to the outside
// world.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tenure/client.h"
#include "tenure/lease.h"
#include "tenure/lease_keeper.h"
#include "tenure/limiter.h"
#include "tenure/outcome.h"
#include "tenure/types.h"

namespace tenure::client {

namespace internal {
class JobRun;
class PoolRun;
struct PoolShared;
}  // namespace internal

enum class LogLevel { kDebug, kInfo, kWarning, kError };
// Receives the pool's and the handlers' log lines; called from many threads at once, must not block for long.
using Logger = std::function<void(LogLevel level, std::string_view message)>;

// What a handler gets: its job, and what it may do besides running. Valid only until the handler returns. All methods
// may be called from any thread meanwhile.
class JobContext {
 public:
  // The whole job, and shortcuts to its parts.
  const Job& job() const;
  const std::string& id() const { return job().id; }
  const std::string& queue() const { return job().queue; }
  const std::string& kind() const { return job().kind; }
  const Payload& payload() const { return job().payload; }
  const Headers& headers() const { return job().headers; }
  // Numbers the claims of this job, from 1.
  int attempt() const { return job().attempt; }
  // The same over all attempts: pass it on so that a repeated effect is recognised.
  const std::string& effect_key() const { return job().effect_key; }
  // The token, for tenure.complete() in the handler's own database transaction (then return SettledElsewhere{}).
  const std::string& lease_token() const;

  // Triggered when the job was cancelled, its lease lost or run out, or the pool's grace period is over: stop soon.
  std::stop_token stop_token() const;
  // Until when the lease is known to be held; moves on as the pool extends it.
  SteadyTime deadline() const;
  // What is known about the lease, to tell why the stop_token was triggered. kHeld then means: the pool shuts down.
  LeaseState lease_state() const;

  // Shown in listings; sent within a second. fraction from 0 to 1; the message is cut at 1,024 bytes.
  void ReportProgress(double fraction, std::string message = {});
  // Enqueued in the same transaction as the job's Complete, only if that wins. At most 100; dropped with any other
  // outcome.
  void AddFollowUp(JobSpec spec);
  // Writes a line to the pool's logger, with the job's id, kind and attempt in front.
  void Log(LogLevel level, std::string_view message) const;

 private:
  friend class internal::JobRun;
  explicit JobContext(internal::JobRun& run) : run_(run) {}
  internal::JobRun& run_;
};

using Handler = std::function<Outcome(JobContext&)>;
// Wraps handlers: does something, calls next(job), looks at the outcome. What `next` throws passes through it.
using Middleware = std::function<Outcome(JobContext&, const Handler& next)>;

// How a job left the pool.
struct SettledEvent {
  const Job& job;
  std::string_view verb;  // "complete", "fail", "release", "snooze".
  absl::Status status;    // OK, or why the daemon refused: LEASE_LOST, JOB_CANCELLED, ALREADY_SETTLED, JOB_NOT_FOUND,
                          // INVALID_ARGUMENT.
  Settled result;         // If OK.
};

// Something that failed and is being dealt with (repeated, mostly).
struct PoolError {
  std::string_view where;  // "claim", "extend", "settle", "notices", "handler", "unknown kind", "shutdown".
  absl::Status status;
};

// Called on the pool's threads; must not block, and may be called from many at once. What they throw is logged and
// dropped.
struct PoolHooks {
  std::function<void(const ClaimedJob&)> acquired;
  std::function<void(const Job&, LeaseState, const absl::Status& why)> lost;  // kRunOut, kLost or kCancelled.
  std::function<void(const SettledEvent&)> settled;
  std::function<void(const PoolError&)> error;
};

struct WorkerPoolOptions {
  std::vector<QueueSelection> queues;  // Required.
  QueueOrder order = QueueOrder::kStrict;
  std::string worker_id;  // Default: host-pid-random.
  int slots = 16;         // Handlers at once: so many threads, started as needed.
  // Jobs claimed beyond the slots, so that a slot need not wait for a claim. Such jobs hold leases, which are extended,
  // and no other pool can take them, free as it may be; if the process dies, each counts a crash and waits for its
  // lease to run out. At shutdown they are given back at once, and spend nothing. From 0 to 100,000. Default: as many
  // as the slots work off in 100 ms (or a tenth of the lease), by how long handlers have run lately, at most 4,000; so
  // none where jobs take 100 ms or more.
  std::optional<int> prefetch;
  std::vector<SlotReservation> reservations;  // Slots kept for a minimum priority.
  int slots_per_tenant = 0;                   // 0: no bound. Claims leave out who has all its slots.
  std::shared_ptr<SlotLimiter> limiter;  // Shared by several pools; default: one of the pool's own, made of the above.
  Duration lease = std::chrono::seconds(30);      // From 1 s to 12 h.
  Duration poll_wait = std::chrono::seconds(30);  // Of a claim; at most 60 s.
  int64_t max_claim_bytes = 3 << 20;              // Payload per claim; at most 64 MiB.
  Duration grace = std::chrono::seconds(10);      // At shutdown: how long handlers may finish.
  Duration stop_wait = std::chrono::seconds(2);   // Then: how long they may take to obey their stop_token.
  Duration flush_wait = std::chrono::seconds(5);  // Then: how long the last settles may take to be answered.
  Duration unknown_kind_snooze = std::chrono::seconds(30);
  // Runs handlers instead of the pool's threads. Must run each task once, on another thread than the caller's.
  std::function<void(std::function<void()>)> executor;
  PoolHooks hooks;
  Logger logger;  // Default: warnings and errors to standard error.
};

// Counters since the pool was made, and gauges. Each is read on its own: they need not add up at one instant.
struct PoolStats {
  int64_t claims = 0;                                                           // Claim calls answered.
  int64_t acquired = 0;                                                         // Jobs that came with them.
  int64_t replayed = 0;                                                         // Claims whose lost reply was replayed.
  int64_t completed = 0, failed = 0, discarded = 0, snoozed = 0, released = 0;  // Acknowledged settles.
  int64_t settled_elsewhere = 0;
  int64_t lost = 0, run_out = 0, cancelled = 0;  // Leases.
  int64_t refused_settles = 0;                   // Answered LEASE_LOST and the like.
  int64_t unknown_kind = 0;
  int64_t not_admitted = 0;  // Given back because of slots_per_tenant or a shared limiter.
  int64_t handler_exceptions = 0;
  int64_t abandoned = 0;  // Handlers that still ran when Run returned.
  int64_t settle_calls = 0, settle_retries = 0, extend_calls = 0, claim_errors = 0, extend_errors = 0;
  int running = 0;    // Handlers now.
  int waiting = 0;    // Claimed, not started.
  int unsettled = 0;  // Handler returned, settle not acknowledged.
};

class WorkerPool {
 public:
  WorkerPool(Client client, WorkerPoolOptions options);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Names the handler of a kind; a second one for the same kind replaces the first. Not while running.
  void Handle(std::string kind, Handler handler);
  // The handler of every kind that has none. Default: such jobs are snoozed for unknown_kind_snooze, counted and warned
  // about.
  void HandleOther(Handler handler);
  // Wraps all handlers; the first one added is the outermost. Not while running.
  void Use(Middleware middleware);

  // Works until `stop` is triggered, then: stops claiming and gives back what has not started -> lets handlers finish
  // for `grace`
  // -> triggers their stop_tokens, waits `stop_wait` -> gives the jobs back whose handlers returned because of it. The
  // job of a handler that still runs keeps its lease to the end (released with what is left of it as delay), its thread
  // is abandoned: what it uses must outlive it, so end the process soon. Returns OK after a clean shutdown;
  // INVALID_ARGUMENT (options; nothing was run); DEADLINE_EXCEEDED (handlers were abandoned or settles were not
  // answered); or the answer to a claim that can never succeed (INVALID_ARGUMENT, UNAUTHENTICATED, PERMISSION_DENIED,
  // UNIMPLEMENTED). Everything else is retried for ever. Installs no signal handler. May be called again.
  absl::Status Run(std::stop_token stop);
  // Run until SIGINT or SIGTERM. A second signal ends the process at once with exit status 128 + its number. The
  // handlers that were installed before are put back. One at a time in a process: FAILED_PRECONDITION otherwise.
  absl::Status RunUntilSignal();

  // For tests. Claims one job without waiting, runs and settles it; false if none was ready.
  absl::StatusOr<bool> WorkOne();
  // For tests. Works everything that is ready, jobs that become ready meanwhile included; returns how many jobs were
  // run.
  absl::StatusOr<int64_t> Drain();

  PoolStats Stats() const;
  const std::string& worker_id() const;

 private:
  std::shared_ptr<internal::PoolShared> shared_;
};

}  // namespace tenure::client

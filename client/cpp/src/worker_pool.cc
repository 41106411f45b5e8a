// WorkerPool's public face: validates options, wraps handlers, starts runs. See tenure/worker_pool.h; the work is in
// pool_run.h.
#include "tenure/worker_pool.h"

#include <iostream>
#include <utility>

#include "pool_run.h"
#include "pool_shared.h"
#include "signal_watch.h"
#include "tenure/errors.h"
#include "utf8.h"

namespace tenure::client {
namespace {

using internal::PoolMode;
using internal::PoolRun;
using std::chrono::hours;
using std::chrono::seconds;

absl::Status Invalid(std::string_view field, std::string_view rule) {
  return MakeStatus(absl::StatusCode::kInvalidArgument, reason::kInvalidField,
                    std::string(field) + ": " + std::string(rule),
                    {{"field", std::string(field)}, {"rule", std::string(rule)}});
}

absl::Status Validate(const internal::PoolShared& shared) {
  const WorkerPoolOptions& options = shared.options;
  if (options.queues.empty() || options.queues.size() > 1000) return Invalid("queues", "must name 1 to 1,000 queues");
  for (const QueueSelection& selection : options.queues) {
    if (selection.queue.empty() || !internal::IsCleanUtf8(selection.queue)) {
      return Invalid("queues", "must be names of 1 to 128 bytes of [A-Za-z0-9._:/-]");
    }
    if (selection.weight < 1 || selection.weight > 1000) return Invalid("queues.weight", "must be from 1 to 1,000");
  }
  if (options.worker_id.empty() || options.worker_id.size() > 255 || !internal::IsCleanUtf8(options.worker_id)) {
    return Invalid("worker_id", "must be 1 to 255 bytes of UTF-8 without NUL");
  }
  if (options.slots < 1 || options.slots > 100'000) return Invalid("slots", "must be from 1 to 100,000");
  if (options.prefetch && (*options.prefetch < 0 || *options.prefetch > 100'000)) {
    return Invalid("prefetch", "must be from 0 to 100,000");
  }
  if (options.slots_per_tenant < 0) return Invalid("slots_per_tenant", "must not be negative");
  if (options.lease < seconds(1) || options.lease > hours(12)) return Invalid("lease", "must be from 1 s to 12 h");
  if (options.poll_wait < Duration::zero() || options.poll_wait > seconds(60))
    return Invalid("poll_wait", "must be from 0 to 60 s");
  if (options.max_claim_bytes < 1 || options.max_claim_bytes > (64 << 20)) {
    return Invalid("max_claim_bytes", "must be from 1 byte to 64 MiB");
  }
  if (options.reservations.size() > 10) return Invalid("reservations", "must be at most 10");
  int reserved = 0;
  for (const SlotReservation& kept : options.reservations) {
    if (kept.min_priority < -100 || kept.min_priority > 100)
      return Invalid("reservations.min_priority", "must be from -100 to 100");
    if (kept.slots < 1) return Invalid("reservations.slots", "must be at least 1");
    reserved += kept.slots;
  }
  if (reserved > options.slots) return Invalid("reservations", "must together be at most slots");
  if (options.limiter && (!options.reservations.empty() || options.slots_per_tenant > 0)) {
    return Invalid("limiter", "carries its own reservations and slots_per_tenant: set them there");
  }
  for (const auto& [field, value] : {std::pair("grace", options.grace), std::pair("stop_wait", options.stop_wait),
                                     std::pair("flush_wait", options.flush_wait)}) {
    if (value < Duration::zero() || value > hours(12)) return Invalid(field, "must be from 0 to 12 h");
  }
  if (options.unknown_kind_snooze < std::chrono::milliseconds(1))
    return Invalid("unknown_kind_snooze", "must be at least 1 ms");
  if (shared.handlers.empty() && !shared.other) return Invalid("handlers", "must be at least one: call Handle first");
  return absl::OkStatus();
}

Handler Wrap(const std::vector<Middleware>& middleware, Handler handler) {
  for (auto around = middleware.rbegin(); around != middleware.rend(); ++around) {
    handler = [around = *around, next = std::move(handler)](JobContext& job) { return around(job, next); };
  }
  return handler;
}

void LogToStandardError(LogLevel level, std::string_view message) {
  if (level < LogLevel::kWarning) return;
  // One write a line, so that lines of several threads do not mix.
  std::string line = level == LogLevel::kWarning ? "tenure: warning: " : "tenure: error: ";
  line.append(message).push_back('\n');
  std::cerr << line;
}

// Validates, then runs; `acquired` receives the number of jobs.
absl::Status RunOnce(const std::shared_ptr<internal::PoolShared>& shared, PoolMode mode, std::stop_token stop,
                     int64_t* acquired) {
  if (shared->running.exchange(true)) return absl::FailedPreconditionError("the pool is running already");
  absl::Status status = Validate(*shared);
  if (status.ok()) {
    shared->wrapped.clear();
    for (const auto& [kind, handler] : shared->handlers) shared->wrapped[kind] = Wrap(shared->middleware, handler);
    shared->wrapped_other = shared->other ? Wrap(shared->middleware, shared->other) : nullptr;
    const auto run = std::make_shared<PoolRun>(shared, mode);
    status = run->Run(std::move(stop));
    if (acquired != nullptr) *acquired = run->acquired();
  }
  shared->running = false;
  return status;
}

}  // namespace

WorkerPool::WorkerPool(Client client, WorkerPoolOptions options)
    : shared_(std::make_shared<internal::PoolShared>(std::move(client), std::move(options))) {
  if (shared_->options.worker_id.empty()) shared_->options.worker_id = NewWorkerId();
  if (!shared_->options.logger) shared_->options.logger = LogToStandardError;
}

WorkerPool::~WorkerPool() = default;

void WorkerPool::Handle(std::string kind, Handler handler) {
  shared_->handlers.insert_or_assign(std::move(kind), std::move(handler));
}
void WorkerPool::HandleOther(Handler handler) { shared_->other = std::move(handler); }
void WorkerPool::Use(Middleware middleware) { shared_->middleware.push_back(std::move(middleware)); }

absl::Status WorkerPool::Run(std::stop_token stop) {
  return RunOnce(shared_, PoolMode::kServe, std::move(stop), nullptr);
}

absl::Status WorkerPool::RunUntilSignal() {
  auto watch = internal::SignalWatch::Install();
  if (!watch.ok()) return watch.status();
  return Run((*watch)->stop_token());
}

absl::StatusOr<bool> WorkerPool::WorkOne() {
  int64_t acquired = 0;
  absl::Status status = RunOnce(shared_, PoolMode::kOne, {}, &acquired);
  if (!status.ok()) return status;
  return acquired > 0;
}

absl::StatusOr<int64_t> WorkerPool::Drain() {
  int64_t acquired = 0;
  absl::Status status = RunOnce(shared_, PoolMode::kDrain, {}, &acquired);
  if (!status.ok()) return status;
  return acquired;
}

PoolStats WorkerPool::Stats() const {
  const internal::PoolCounters& from = shared_->counters;
  PoolStats stats;
  stats.claims = from.claims;
  stats.acquired = from.acquired;
  stats.replayed = from.replayed;
  stats.completed = from.completed;
  stats.failed = from.failed;
  stats.discarded = from.discarded;
  stats.snoozed = from.snoozed;
  stats.released = from.released;
  stats.settled_elsewhere = from.settled_elsewhere;
  stats.lost = from.lost;
  stats.run_out = from.run_out;
  stats.cancelled = from.cancelled;
  stats.refused_settles = from.refused_settles;
  stats.unknown_kind = from.unknown_kind;
  stats.not_admitted = from.not_admitted;
  stats.handler_exceptions = from.handler_exceptions;
  stats.abandoned = from.abandoned;
  stats.settle_calls = from.settle_calls;
  stats.settle_retries = from.settle_retries;
  stats.extend_calls = from.extend_calls;
  stats.claim_errors = from.claim_errors;
  stats.extend_errors = from.extend_errors;
  stats.running = from.running;
  stats.waiting = from.waiting;
  stats.unsettled = from.unsettled;
  return stats;
}

const std::string& WorkerPool::worker_id() const { return shared_->options.worker_id; }

}  // namespace tenure::client

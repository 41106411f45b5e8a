// See retry_policy.h.
#include "retry_policy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "tenure/errors.h"

namespace tenure::client::internal {
namespace {

constexpr std::array<RpcVerdict, 50> kVerdicts = {{
    {"tenure.v1.JobService.Enqueue", Verdict::kOnlyWithKey, "without a key the job would be made twice"},
    {"tenure.v1.JobService.Get", Verdict::kIdempotent, "reads"},
    {"tenure.v1.JobService.List", Verdict::kIdempotent, "reads"},
    {"tenure.v1.JobService.Cancel", Verdict::kIdempotent, "a cancelled job answers OK again"},
    {"tenure.v1.JobService.Retry", Verdict::kOnlyWithKey, "without a request id an ended job would be made anew twice"},
    {"tenure.v1.JobService.Explain", Verdict::kIdempotent, "reads"},
    {"tenure.v1.QueueService.CreateQueue", Verdict::kNever,
     "a repeat would answer QUEUE_EXISTS for the caller's own queue"},
    {"tenure.v1.QueueService.UpdateQueue", Verdict::kIdempotent, "sets the same values"},
    {"tenure.v1.QueueService.GetQueue", Verdict::kIdempotent, "reads"},
    {"tenure.v1.QueueService.ListQueues", Verdict::kIdempotent, "reads"},
    {"tenure.v1.QueueService.PauseQueue", Verdict::kIdempotent, "sets the same state"},
    {"tenure.v1.QueueService.ResumeQueue", Verdict::kIdempotent, "sets the same state"},
    {"tenure.v1.ScheduleService.CreateSchedule", Verdict::kNever,
     "a repeat would answer SCHEDULE_EXISTS for the caller's own schedule"},
    {"tenure.v1.ScheduleService.UpdateSchedule", Verdict::kIdempotent, "sets the same values"},
    {"tenure.v1.ScheduleService.GetSchedule", Verdict::kIdempotent, "reads"},
    {"tenure.v1.ScheduleService.ListSchedules", Verdict::kIdempotent, "reads"},
    {"tenure.v1.ScheduleService.DeleteSchedule", Verdict::kNever,
     "a repeat would answer SCHEDULE_NOT_FOUND for what the caller deleted"},
    {"tenure.v1.ScheduleService.PauseSchedule", Verdict::kIdempotent, "sets the same state"},
    {"tenure.v1.ScheduleService.ResumeSchedule", Verdict::kIdempotent, "sets the same state"},
    {"tenure.v1.ScheduleService.TriggerSchedule", Verdict::kOnlyWithKey,
     "without a request id a second job would be made"},
    {"tenure.v1.TargetService.CreateTarget", Verdict::kNever,
     "a repeat would answer TARGET_EXISTS for the caller's own target"},
    {"tenure.v1.TargetService.UpdateTarget", Verdict::kIdempotent, "sets the same values"},
    {"tenure.v1.TargetService.GetTarget", Verdict::kIdempotent, "reads"},
    {"tenure.v1.TargetService.ListTargets", Verdict::kIdempotent, "reads"},
    {"tenure.v1.TargetService.DeleteTarget", Verdict::kNever,
     "a repeat would answer TARGET_NOT_FOUND for what the caller deleted"},
    {"tenure.v1.TargetService.PauseTarget", Verdict::kIdempotent, "sets the same state"},
    {"tenure.v1.TargetService.ResumeTarget", Verdict::kIdempotent, "sets the same state"},
    {"tenure.v1.TargetService.ListDeadDeliveries", Verdict::kIdempotent, "reads"},
    {"tenure.v1.TargetService.RedriveDeliveries", Verdict::kIdempotent, "what is not dead any more is left alone"},
    {"tenure.v1.MoveService.CreateMove", Verdict::kOnlyWithKey, "without a request id a second move would be made"},
    {"tenure.v1.MoveService.GetMove", Verdict::kIdempotent, "reads"},
    {"tenure.v1.MoveService.ListMoves", Verdict::kIdempotent, "reads"},
    {"tenure.v1.MoveService.PauseMove", Verdict::kIdempotent, "sets the same state"},
    {"tenure.v1.MoveService.ResumeMove", Verdict::kIdempotent, "sets the same state"},
    {"tenure.v1.MoveService.CancelMove", Verdict::kIdempotent, "sets the same state"},
    {"tenure.v1.LimitService.SetLimit", Verdict::kIdempotent, "sets the same values"},
    {"tenure.v1.LimitService.GetLimit", Verdict::kIdempotent, "reads"},
    {"tenure.v1.LimitService.ListLimits", Verdict::kIdempotent, "reads"},
    {"tenure.v1.LimitService.DeleteLimit", Verdict::kNever,
     "a repeat would answer LIMIT_NOT_FOUND for what the caller deleted"},
    {"tenure.v1.WorkerService.Claim", Verdict::kOnlyWithKey,
     "without a request id the jobs of the lost reply wait for their lease"},
    {"tenure.v1.WorkerService.Extend", Verdict::kIdempotent, "never moves the end of a lease to earlier"},
    {"tenure.v1.WorkerService.Complete", Verdict::kIdempotent, "the token that won answers OK again"},
    {"tenure.v1.WorkerService.Fail", Verdict::kIdempotent, "the token that won answers OK again"},
    {"tenure.v1.WorkerService.Release", Verdict::kIdempotent, "the token that won answers OK again"},
    {"tenure.v1.WorkerService.Snooze", Verdict::kIdempotent, "the token that won answers OK again"},
    {"tenure.v1.WorkerService.AwaitNotices", Verdict::kIdempotent, "notices are kept and left out by id"},
    {"tenure.v1.WorkerService.ListWorkers", Verdict::kIdempotent, "reads"},
    {"tenure.v1.AdminService.GetServerInfo", Verdict::kIdempotent, "reads"},
    {"tenure.v1.AdminService.ListServers", Verdict::kIdempotent, "reads"},
    {"tenure.v1.AdminService.ListBackgroundWorkers", Verdict::kIdempotent, "reads"},
}};

std::minstd_rand& Generator() {
  thread_local std::minstd_rand generator(std::random_device{}());
  return generator;
}

}  // namespace

std::span<const RpcVerdict> AllVerdicts() { return kVerdicts; }

Verdict VerdictOf(std::string_view method) {
  for (const RpcVerdict& entry : kVerdicts) {
    if (entry.method == method) return entry.verdict;
  }
  return Verdict::kNever;
}

bool HasKey(const v1::EnqueueRequest& request) {
  return std::all_of(request.jobs().begin(), request.jobs().end(),
                     [](const v1::JobSpec& job) { return !job.idempotency_key().empty(); });
}

bool IsTransient(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kDeadlineExceeded:
      return !IsFinalAnswer(status);
    case absl::StatusCode::kResourceExhausted: {
      if (RetryDelay(status)) return true;
      const std::string found = ErrorReason(status);
      return found == reason::kOverloaded || found == reason::kTooManyPolls;
    }
    default:
      return false;
  }
}

bool RefusedBeforeEffect(const absl::Status& status) {
  if (status.code() != absl::StatusCode::kUnavailable && status.code() != absl::StatusCode::kResourceExhausted)
    return false;
  const std::string found = ErrorReason(status);
  return found == reason::kOverloaded || found == reason::kTooManyPolls || found == reason::kDraining;
}

Duration BackoffAfter(int failures, const absl::Status& status, const RetryOptions& options) {
  const double grown = static_cast<double>(options.initial_backoff.count()) *
                       std::pow(options.multiplier, std::clamp(failures, 1, 64) - 1);
  const Duration full(static_cast<Duration::rep>(std::min(grown, static_cast<double>(options.max_backoff.count()))));
  const Duration wait = full - Jitter(full / 2);
  const auto asked = RetryDelay(status);
  // The daemon's wish is a floor, spread a little: everybody whom it shed was told the same.
  return asked ? std::max(wait, *asked + Jitter(*asked / 10)) : wait;
}

Duration Jitter(Duration limit) {
  if (limit <= Duration::zero()) return Duration::zero();
  return Duration(std::uniform_int_distribution<Duration::rep>(0, limit.count() - 1)(Generator()));
}

}  // namespace tenure::client::internal

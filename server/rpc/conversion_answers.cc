// The second half of conversion.h: the engine's answers to protobuf.
#include <algorithm>
#include <utility>

#include "server/rpc/conversion.h"
#include "server/rpc/status_mapping.h"
#include "server/rpc/text.h"

namespace tenure::rpc {
namespace {

// The wire's numbers are the stored ones.
static_assert(static_cast<int>(store::JobState::kScheduled) == v1::JOB_STATE_SCHEDULED);
static_assert(static_cast<int>(store::JobState::kBlocked) == v1::JOB_STATE_BLOCKED);
static_assert(static_cast<int>(store::JobState::kReady) == v1::JOB_STATE_READY);
static_assert(static_cast<int>(store::JobState::kLeased) == v1::JOB_STATE_LEASED);
static_assert(static_cast<int>(store::JobState::kSuspended) == v1::JOB_STATE_SUSPENDED);
static_assert(static_cast<int>(store::JobState::kCompleted) == v1::JOB_STATE_COMPLETED);
static_assert(static_cast<int>(store::JobState::kDiscarded) == v1::JOB_STATE_DISCARDED);
static_assert(static_cast<int>(store::JobState::kCancelled) == v1::JOB_STATE_CANCELLED);
static_assert(static_cast<int>(store::JobState::kExpired) == v1::JOB_STATE_EXPIRED);
static_assert(static_cast<int>(store::OnConflict::kReturn) == v1::UNIQUE_CONFLICT_RETURN_EXISTING);
static_assert(static_cast<int>(store::OnConflict::kReplace) == v1::UNIQUE_CONFLICT_REPLACE);
static_assert(static_cast<int>(store::OnConflict::kReschedule) == v1::UNIQUE_CONFLICT_RESCHEDULE);
static_assert(static_cast<int>(store::OnConflict::kReplaceAndReschedule) == v1::UNIQUE_CONFLICT_REPLACE_AND_RESCHEDULE);
static_assert(static_cast<int>(store::OnConflict::kReject) == v1::UNIQUE_CONFLICT_REJECT);
static_assert(static_cast<int>(store::NoticeType::kCancelled) == v1::NOTICE_TYPE_CANCELLED);
static_assert(static_cast<int>(store::NoticeType::kLeaseLost) == v1::NOTICE_TYPE_LEASE_LOST);

constexpr int32_t kDefaultMaxAttempts = 20;
constexpr int32_t kDefaultCrashBudget = 5;

// An instant that is "never" stays unset.
bool IsSet(absl::Time time) { return time != absl::InfiniteFuture() && time != absl::InfinitePast(); }
bool IsSet(const std::optional<absl::Time>& time) { return time.has_value() && IsSet(*time); }

}  // namespace

void ToProto(const store::Backoff& backoff, v1::Backoff* out) {
  ToProto(absl::Microseconds(backoff.initial_us), out->mutable_initial());
  out->set_multiplier(backoff.multiplier);
  ToProto(absl::Microseconds(backoff.max_us), out->mutable_max());
}

v1::JobState ToProto(store::JobState state) { return static_cast<v1::JobState>(state); }

void ToProto(absl::Time time, google::protobuf::Timestamp* out) {
  const int64_t seconds = absl::ToUnixSeconds(time);  // Rounds down, so that nanos are never negative.
  out->set_seconds(seconds);
  out->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(time - absl::FromUnixSeconds(seconds))));
}

void ToProto(absl::Duration duration, google::protobuf::Duration* out) {
  absl::Duration rest;
  out->set_seconds(absl::IDivDuration(duration, absl::Seconds(1), &rest));
  out->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
}

void ToProto(store::Payload&& payload, v1::Payload* out) {
  if (IsTextual(payload.content_type) && IsUtf8(payload.data)) {
    out->set_text(std::move(payload.data));
  } else {
    out->set_data(std::move(payload.data));
  }
  out->set_content_type(std::move(payload.content_type));
}

void ToProto(store::Job&& job, std::string queue, v1::Job* out) {
  out->set_id(job.id.ToString());
  out->set_queue(std::move(queue));
  out->set_kind(std::move(job.kind));
  out->set_state(ToProto(job.state));
  // A payload always has a content type; without one it was not read.
  if (!job.payload.content_type.empty() || !job.payload.data.empty()) {
    ToProto(std::move(job.payload), out->mutable_payload());
  }
  for (auto& [key, value] : job.headers) (*out->mutable_headers())[key] = std::move(value);
  out->set_priority(job.priority);
  out->set_tenant(std::move(job.tenant));
  out->set_attempt(job.attempt);
  out->set_failures(job.failures);
  out->set_max_attempts(job.max_attempts);
  out->set_crashes(job.crashes);
  out->set_crash_budget(job.crash_budget);
  out->set_releases(job.releases);
  out->set_snoozes(job.snoozes);
  out->set_effect_key(std::move(job.effect_key));
  out->set_retry_of(std::move(job.retry_of));
  out->set_forwarded_to(std::move(job.forwarded_to));
  out->set_idempotency_key(std::move(job.idempotency_key));
  for (std::string& key : job.concurrency_keys) out->add_concurrency_keys(std::move(key));
  out->set_group_key(std::move(job.group));
  if (!job.unique_key.empty()) {
    out->set_unique_scope(job.unique_by_kind ? v1::UNIQUE_SCOPE_KIND : v1::UNIQUE_SCOPE_QUEUE);
    out->set_unique_key(std::move(job.unique_key));
  }
  ToProto(job.created, out->mutable_create_time());
  ToProto(job.due, out->mutable_due_time());
  ToProto(job.updated, out->mutable_update_time());
  if (IsSet(job.started)) ToProto(*job.started, out->mutable_start_time());
  if (IsSet(job.ended)) ToProto(*job.ended, out->mutable_end_time());
  if (IsSet(job.expires)) ToProto(*job.expires, out->mutable_expire_time());
  if (job.lease) {
    out->mutable_lease()->set_worker_id(std::move(job.lease->worker));
    ToProto(job.lease->expires, out->mutable_lease()->mutable_expire_time());
    ToProto(job.lease->granted, out->mutable_lease()->mutable_grant_time());
    out->mutable_lease()->set_token_number(job.lease->number);
  }
  if (job.error) {
    out->mutable_error()->set_message(std::move(job.error->message));
    out->mutable_error()->set_type(std::move(job.error->type));
    out->mutable_error()->set_detail(std::move(job.error->detail));
    out->mutable_error()->set_attempt(job.error->attempt);
    ToProto(job.error->at, out->mutable_error()->mutable_record_time());
  }
  if (job.result) ToProto(std::move(*job.result), out->mutable_result());
  if (job.progress) {
    out->mutable_progress()->set_fraction(job.progress->fraction);
    out->mutable_progress()->set_message(std::move(job.progress->message));
  }
  if (job.backoff) ToProto(*job.backoff, out->mutable_backoff());
}

void ToProto(store::ClaimedJob&& claimed, std::string queue, v1::ClaimedJob* out) {
  out->set_lease_token(claimed.token.ToString());
  // What remained when the row was read, never more: the worker counts it from when it sent the request, which was
  // earlier.
  ToProto(std::max(absl::ZeroDuration(), std::min(claimed.lease, claimed.remaining)), out->mutable_lease_duration());
  ToProto(std::move(claimed.job), std::move(queue), out->mutable_job());
}

void ToProto(const engine::SettleAnswer& answer, v1::SettleResult* out) {
  if (!answer.status.ok()) return ToItemError(answer.status, out->mutable_error());
  out->set_state(ToProto(answer.state));
  if (IsSet(answer.due)) ToProto(*answer.due, out->mutable_due_time());
  for (const store::JobId& id : answer.follow_ups) out->add_follow_up_ids(id.ToString());
  out->set_replayed(answer.replayed);
}

void ToProto(const engine::ExtendAnswer& answer, v1::ExtendResult* out) {
  if (!answer.status.ok()) return ToItemError(answer.status, out->mutable_error());
  ToProto(answer.expires, out->mutable_expire_time());
  ToProto(answer.remaining, out->mutable_lease_duration());
}

void ToProto(const engine::QueueInfo& info, v1::Queue* out) {
  out->set_name(info.queue.name);
  const store::QueueSettings& settings = info.queue.settings;
  // What holds for its jobs, whether it was chosen or is the default.
  out->mutable_settings()->set_max_attempts(settings.max_attempts.value_or(kDefaultMaxAttempts));
  out->mutable_settings()->set_crash_budget(settings.crash_budget.value_or(kDefaultCrashBudget));
  ToProto(settings.backoff.value_or(store::Backoff()), out->mutable_settings()->mutable_backoff());
  out->mutable_settings()->set_description(settings.description);
  out->mutable_settings()->set_max_depth(settings.max_depth.value_or(0));
  out->mutable_settings()->set_max_tenant_depth(settings.max_tenant_depth.value_or(0));
  out->mutable_settings()->set_groups_skip_retrying(settings.skip_retrying);
  out->mutable_settings()->set_fair_tenants(settings.fair_tenants);
  if (settings.priority_ageing) ToProto(*settings.priority_ageing, out->mutable_settings()->mutable_priority_ageing());
  out->mutable_settings()->set_dead_letter_queue(settings.dead_letter_queue);
  out->mutable_settings()->set_dead_letter_jobs_per_second(settings.dead_letter_rate.value_or(0));
  if (settings.start_within) ToProto(*settings.start_within, out->mutable_settings()->mutable_start_within());
  out->set_paused(info.queue.paused);
  ToProto(info.queue.created, out->mutable_create_time());
  v1::QueueStats* stats = out->mutable_stats();
  stats->set_scheduled(info.counts.scheduled);
  stats->set_blocked(info.counts.blocked);
  stats->set_ready(info.counts.ready);
  stats->set_leased(info.counts.leased);
  stats->set_suspended(info.counts.suspended);
  stats->set_completed_total(info.counts.completed);
  stats->set_discarded_total(info.counts.discarded);
  stats->set_cancelled_total(info.counts.cancelled);
  stats->set_expired_total(info.counts.expired);
  stats->set_enqueued_total(info.counts.enqueued);
  if (info.oldest_ready) ToProto(*info.oldest_ready, stats->mutable_oldest_ready_age());
}

void ToProto(const store::Notice& notice, v1::Notice* out) {
  out->set_id(std::to_string(notice.id));
  out->set_type(static_cast<v1::NoticeType>(notice.type));
  out->set_job_id(notice.job.ToString());
  out->set_token_number(notice.number);
  out->set_reason(notice.reason);
}

void ToProto(const store::WorkerRow& worker, v1::Worker* out) {
  out->set_worker_id(worker.worker);
  ToProto(worker.last_claim, out->mutable_last_claim_time());
  out->set_leased_jobs(worker.leased);
  for (const std::string& queue : worker.queues) out->add_queues(queue);
}

void ToProto(const store::ReplicaRow& replica, v1::Server* out) {
  out->set_replica_id(replica.id);
  out->set_name(replica.name);
  out->set_version(replica.version);
  ToProto(replica.started, out->mutable_start_time());
  ToProto(replica.heartbeat, out->mutable_heartbeat_time());
  out->set_draining(replica.draining);
  for (const std::string& worker : replica.leads) out->add_leads(worker);
}

void ToProto(const store::BackgroundRow& row, v1::BackgroundWorker* out) {
  out->set_name(row.name);
  out->set_leader(row.holder);
  out->set_term(row.term);
  if (row.since) ToProto(*row.since, out->mutable_leader_since());
  if (row.last_success) ToProto(*row.last_success, out->mutable_last_success_time());
  out->set_last_error(SanitizeText(row.last_error, 64 << 10));
  out->set_runs(row.runs);
  out->set_restarts(row.restarts);
  out->set_shards(row.shards);
}

engine::ClaimAnswer LeasesOf(const std::vector<store::ClaimedJob>& jobs) {
  engine::ClaimAnswer leases;
  leases.jobs.reserve(jobs.size());
  for (const store::ClaimedJob& claimed : jobs) {
    store::ClaimedJob& slim = leases.jobs.emplace_back();
    slim.token = claimed.token;
    slim.lease = claimed.lease;
    slim.remaining = claimed.remaining;
    slim.slot = claimed.slot;
    slim.job.id = claimed.job.id;
    slim.job.state = claimed.job.state;
    slim.job.priority = claimed.job.priority;
  }
  return leases;
}

}  // namespace tenure::rpc

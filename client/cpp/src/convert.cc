// See convert.h.
#include "convert.h"

#include <algorithm>
#include <utility>

#include "tenure/errors.h"
#include "utf8.h"

namespace tenure::client::internal {
namespace {

constexpr size_t kMaxErrorText = 64 << 10;
constexpr size_t kMaxErrorType = 255;
constexpr size_t kMaxProgressText = 1024;

void ToProto(const Backoff& from, v1::Backoff* to) {
  internal::ToProto(from.initial, to->mutable_initial());
  to->set_multiplier(from.multiplier);
  internal::ToProto(from.max, to->mutable_max());
}

template <typename Message>
std::optional<Time> OptionalTime(const Message& from, bool set) {
  return set ? std::optional<Time>(FromProto(from)) : std::nullopt;
}

absl::Status CheckAll(std::initializer_list<std::pair<std::string_view, std::string_view>> fields) {
  for (const auto& [field, text] : fields) {
    if (absl::Status status = CheckText(field, text); !status.ok()) return status;
  }
  return absl::OkStatus();
}

template <typename Map>
absl::Status CopyHeaders(const Headers& from, Map* to) {
  for (const auto& [key, value] : from) {
    if (absl::Status status = CheckText("headers", key); !status.ok()) return status;
    if (absl::Status status = CheckText("headers[" + key + "]", value); !status.ok()) return status;
    (*to)[key] = value;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckText(std::string_view field, std::string_view text) {
  if (IsCleanUtf8(text)) return absl::OkStatus();
  const std::string rule = "must be valid UTF-8 without NUL";
  return MakeStatus(absl::StatusCode::kInvalidArgument, reason::kInvalidField, CleanUtf8(field, 1024) + ": " + rule,
                    {{"field", CleanUtf8(field, 1024)}, {"rule", rule}});
}

void ToProto(Duration from, google::protobuf::Duration* to) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(from);
  to->set_seconds(seconds.count());
  to->set_nanos(static_cast<int32_t>((from - seconds).count()));
}

void ToProto(Time from, google::protobuf::Timestamp* to) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(from);
  to->set_seconds(seconds.time_since_epoch().count());
  to->set_nanos(static_cast<int32_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(from - seconds).count()));
}

Duration FromProto(const google::protobuf::Duration& from) {
  return std::chrono::seconds(from.seconds()) + std::chrono::nanoseconds(from.nanos());
}

Time FromProto(const google::protobuf::Timestamp& from) {
  return Time(std::chrono::duration_cast<Time::duration>(std::chrono::seconds(from.seconds()) +
                                                         std::chrono::nanoseconds(from.nanos())));
}

absl::Status ToProto(const Payload& from, v1::Payload* to) {
  to->set_data(from.data);
  to->set_content_type(from.content_type);
  return CheckText("payload.content_type", from.content_type);
}

void ToProto(const Progress& from, v1::Progress* to) {
  to->set_fraction(from.fraction);
  to->set_message(CleanUtf8(from.message, kMaxProgressText));
}

absl::Status ToProto(const JobSpec& from, v1::JobSpec* to) {
  absl::Status status = CheckAll({{"queue", from.queue},
                                  {"kind", from.kind},
                                  {"tenant", from.tenant},
                                  {"idempotency_key", from.idempotency_key},
                                  {"effect_key", from.effect_key},
                                  {"group_key", from.group_key}});
  if (!status.ok()) return status;
  to->set_queue(from.queue);
  to->set_kind(from.kind);
  if (status = ToProto(from.payload, to->mutable_payload()); !status.ok()) return status;
  if (status = CopyHeaders(from.headers, to->mutable_headers()); !status.ok()) return status;
  to->set_priority(from.priority);
  to->set_tenant(from.tenant);
  if (from.due_time) ToProto(*from.due_time, to->mutable_due_time());
  if (from.delay) ToProto(*from.delay, to->mutable_delay());
  if (from.expire_time) ToProto(*from.expire_time, to->mutable_expire_time());
  if (from.ttl) ToProto(*from.ttl, to->mutable_ttl());
  if (from.max_attempts) to->set_max_attempts(*from.max_attempts);
  if (from.crash_budget) to->set_crash_budget(*from.crash_budget);
  if (from.backoff) ToProto(*from.backoff, to->mutable_backoff());
  to->set_idempotency_key(from.idempotency_key);
  if (from.idempotency_retention) ToProto(*from.idempotency_retention, to->mutable_idempotency_retention());
  to->set_effect_key(from.effect_key);
  for (const std::string& key : from.concurrency_keys) {
    if (status = CheckText("concurrency_keys", key); !status.ok()) return status;
    to->add_concurrency_keys(key);
  }
  to->set_group_key(from.group_key);
  if (from.unique) {
    if (status = CheckText("unique.key", from.unique->key); !status.ok()) return status;
    v1::Unique* unique = to->mutable_unique();
    unique->set_key(from.unique->key);
    unique->set_scope(from.unique->by_kind ? v1::UNIQUE_SCOPE_KIND : v1::UNIQUE_SCOPE_QUEUE);
    for (JobState state : from.unique->states) unique->add_states(static_cast<v1::JobState>(state));
    if (from.unique->period) ToProto(*from.unique->period, unique->mutable_period());
    unique->set_on_conflict(static_cast<v1::UniqueConflict>(from.unique->on_conflict));
  }
  if (from.depends_on) {
    v1::DependsOn* depends_on = to->mutable_depends_on();
    for (const std::string& id : from.depends_on->job_ids) {
      if (status = CheckText("depends_on.job_ids", id); !status.ok()) return status;
      depends_on->add_job_ids(id);
    }
    for (int item : from.depends_on->items) depends_on->add_items(item);
    if (from.depends_on->all_ended) depends_on->set_condition(v1::DEPENDENCY_CONDITION_ENDED);
    if (from.depends_on->release_on_failure) depends_on->set_on_failure(v1::DEPENDENCY_FAILURE_RELEASE);
  }
  return absl::OkStatus();
}

absl::Status ToProto(const CompleteItem& from, v1::CompleteItem* to) {
  to->set_lease_token(from.lease_token);
  if (absl::Status status = CheckText("lease_token", from.lease_token); !status.ok()) return status;
  if (from.result) {
    if (absl::Status status = ToProto(*from.result, to->mutable_result()); !status.ok()) return status;
  }
  for (const JobSpec& spec : from.follow_ups) {
    if (absl::Status status = ToProto(spec, to->add_follow_ups()); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status ToProto(const ExtendItem& from, v1::ExtendItem* to) {
  to->set_lease_token(from.lease_token);
  if (from.duration) ToProto(*from.duration, to->mutable_duration());
  if (from.progress) ToProto(*from.progress, to->mutable_progress());
  return CheckText("lease_token", from.lease_token);
}

absl::Status ToProto(const FailItem& from, v1::FailItem* to) {
  to->set_lease_token(from.lease_token);
  to->mutable_error()->set_message(CleanUtf8(from.error.message, kMaxErrorText));
  to->mutable_error()->set_type(CleanUtf8(from.error.type, kMaxErrorType));
  to->mutable_error()->set_detail(CleanUtf8(from.error.detail, kMaxErrorText));
  to->set_non_retryable(from.non_retryable);
  if (from.retry_after) ToProto(*from.retry_after, to->mutable_retry_after());
  if (from.pause_key_for) ToProto(*from.pause_key_for, to->mutable_pause_key_for());
  to->set_pause_key(from.pause_key);
  if (absl::Status status = CheckText("pause_key", from.pause_key); !status.ok()) return status;
  return CheckText("lease_token", from.lease_token);
}

absl::Status ToProto(const ReleaseItem& from, v1::ReleaseItem* to) {
  to->set_lease_token(from.lease_token);
  if (from.delay) ToProto(*from.delay, to->mutable_delay());
  return CheckText("lease_token", from.lease_token);
}

absl::Status ToProto(const SnoozeItem& from, v1::SnoozeItem* to) {
  to->set_lease_token(from.lease_token);
  ToProto(from.delay, to->mutable_delay());
  return CheckText("lease_token", from.lease_token);
}

void ToProto(const QueueSettings& from, v1::QueueSettings* to) {
  if (from.max_attempts) to->set_max_attempts(*from.max_attempts);
  if (from.crash_budget) to->set_crash_budget(*from.crash_budget);
  if (from.backoff) ToProto(*from.backoff, to->mutable_backoff());
  if (from.max_depth) to->set_max_depth(*from.max_depth);
  if (from.max_tenant_depth) to->set_max_tenant_depth(*from.max_tenant_depth);
  if (from.description) to->set_description(CleanUtf8(*from.description, from.description->size()));
  if (from.groups_skip_retrying) to->set_groups_skip_retrying(*from.groups_skip_retrying);
  if (from.fair_tenants) to->set_fair_tenants(*from.fair_tenants);
  if (from.priority_ageing) ToProto(*from.priority_ageing, to->mutable_priority_ageing());
  if (from.dead_letter_queue) {
    to->set_dead_letter_queue(CleanUtf8(*from.dead_letter_queue, from.dead_letter_queue->size()));
  }
  if (from.dead_letter_jobs_per_second) to->set_dead_letter_jobs_per_second(*from.dead_letter_jobs_per_second);
  if (from.start_within) ToProto(*from.start_within, to->mutable_start_within());
}

absl::Status ToProto(const ClaimOptions& from, v1::ClaimRequest* to) {
  absl::Status status = CheckAll({{"worker_id", from.worker_id}, {"request_id", from.request_id}});
  if (!status.ok()) return status;
  to->set_worker_id(from.worker_id);
  for (const QueueSelection& selection : from.queues) {
    if (status = CheckText("queues", selection.queue); !status.ok()) return status;
    auto* queue = to->add_queues();
    queue->set_queue(selection.queue);
    queue->set_weight(selection.weight);
  }
  to->set_order(from.order == QueueOrder::kWeighted ? v1::QUEUE_ORDER_WEIGHTED : v1::QUEUE_ORDER_STRICT);
  to->set_max_jobs(from.max_jobs);
  ToProto(from.lease, to->mutable_lease_duration());
  if (from.wait > Duration::zero()) ToProto(from.wait, to->mutable_wait());
  to->set_request_id(from.request_id);
  for (const SlotReservation& kept : from.reservations) {
    auto* reservation = to->add_reservations();
    reservation->set_min_priority(kept.min_priority);
    reservation->set_slots(kept.slots);
  }
  for (const std::string& tenant : from.exclude_tenants) {
    if (status = CheckText("exclude_tenants", tenant); !status.ok()) return status;
    to->add_exclude_tenants(tenant);
  }
  if (from.max_bytes > 0) to->set_max_bytes(from.max_bytes);
  return absl::OkStatus();
}

absl::Status ToProto(const JobFilter& from, v1::ListRequest* to) {
  absl::Status status = CheckAll({{"queue", from.queue}, {"holder", from.holder}});
  if (!status.ok()) return status;
  to->set_queue(from.queue);
  for (const std::string& kind : from.kinds) {
    if (status = CheckText("kinds", kind); !status.ok()) return status;
    to->add_kinds(kind);
  }
  for (const JobState state : from.states) to->add_states(static_cast<v1::JobState>(state));
  if (status = CopyHeaders(from.headers, to->mutable_headers()); !status.ok()) return status;
  to->set_holder(from.holder);
  if (from.created_after) ToProto(*from.created_after, to->mutable_created_after());
  if (from.created_before) ToProto(*from.created_before, to->mutable_created_before());
  if (from.updated_after) ToProto(*from.updated_after, to->mutable_updated_after());
  if (from.updated_before) ToProto(*from.updated_before, to->mutable_updated_before());
  if (from.due_after) ToProto(*from.due_after, to->mutable_due_after());
  if (from.due_before) ToProto(*from.due_before, to->mutable_due_before());
  to->set_include_payloads(from.include_payloads);
  return absl::OkStatus();
}

Backoff TakeBackoff(const v1::Backoff& from) {
  Backoff to;
  if (from.has_initial()) to.initial = FromProto(from.initial());
  if (from.multiplier() > 0) to.multiplier = from.multiplier();
  if (from.has_max()) to.max = FromProto(from.max());
  return to;
}

Payload TakePayload(v1::Payload& from) {
  Payload to;
  to.content_type = std::move(*from.mutable_content_type());
  to.data = from.has_text() ? std::move(*from.mutable_text()) : std::move(*from.mutable_data());
  return to;
}

JobSpec TakeJobSpec(v1::JobSpec& from) {
  JobSpec to;
  to.queue = std::move(*from.mutable_queue());
  to.kind = std::move(*from.mutable_kind());
  if (from.has_payload()) to.payload = TakePayload(*from.mutable_payload());
  for (auto& [key, value] : *from.mutable_headers()) to.headers.emplace(key, std::move(value));
  to.priority = from.priority();
  to.tenant = std::move(*from.mutable_tenant());
  to.due_time = OptionalTime(from.due_time(), from.has_due_time());
  if (from.has_delay()) to.delay = FromProto(from.delay());
  to.expire_time = OptionalTime(from.expire_time(), from.has_expire_time());
  if (from.has_ttl()) to.ttl = FromProto(from.ttl());
  if (from.max_attempts() > 0) to.max_attempts = from.max_attempts();
  if (from.crash_budget() > 0) to.crash_budget = from.crash_budget();
  if (from.has_backoff()) to.backoff = TakeBackoff(from.backoff());
  to.idempotency_key = std::move(*from.mutable_idempotency_key());
  if (from.has_idempotency_retention()) to.idempotency_retention = FromProto(from.idempotency_retention());
  to.effect_key = std::move(*from.mutable_effect_key());
  to.concurrency_keys.assign(from.concurrency_keys().begin(), from.concurrency_keys().end());
  to.group_key = std::move(*from.mutable_group_key());
  return to;
}

Job TakeJob(v1::Job& from) {
  Job to;
  to.id = std::move(*from.mutable_id());
  to.queue = std::move(*from.mutable_queue());
  to.kind = std::move(*from.mutable_kind());
  to.state = v1::JobState_IsValid(from.state()) ? static_cast<JobState>(from.state()) : JobState::kUnknown;
  if (from.has_payload()) to.payload = TakePayload(*from.mutable_payload());
  for (auto& [key, value] : *from.mutable_headers()) to.headers.emplace(key, std::move(value));
  to.priority = from.priority();
  to.tenant = std::move(*from.mutable_tenant());
  to.attempt = from.attempt();
  to.failures = from.failures();
  to.max_attempts = from.max_attempts();
  to.crashes = from.crashes();
  to.crash_budget = from.crash_budget();
  to.releases = from.releases();
  to.snoozes = from.snoozes();
  to.effect_key = std::move(*from.mutable_effect_key());
  to.concurrency_keys.assign(from.concurrency_keys().begin(), from.concurrency_keys().end());
  to.group_key = std::move(*from.mutable_group_key());
  to.unique_key = std::move(*from.mutable_unique_key());
  to.unique_by_kind = from.unique_scope() == v1::UNIQUE_SCOPE_KIND;
  to.retry_of = std::move(*from.mutable_retry_of());
  to.forwarded_to = std::move(*from.mutable_forwarded_to());
  to.idempotency_key = std::move(*from.mutable_idempotency_key());
  to.create_time = OptionalTime(from.create_time(), from.has_create_time());
  to.due_time = OptionalTime(from.due_time(), from.has_due_time());
  to.start_time = OptionalTime(from.start_time(), from.has_start_time());
  to.end_time = OptionalTime(from.end_time(), from.has_end_time());
  to.expire_time = OptionalTime(from.expire_time(), from.has_expire_time());
  to.update_time = OptionalTime(from.update_time(), from.has_update_time());
  if (from.has_lease()) {
    auto& lease = *from.mutable_lease();
    to.lease =
        LeaseInfo{std::move(*lease.mutable_worker_id()), OptionalTime(lease.expire_time(), lease.has_expire_time()),
                  lease.token_number(), OptionalTime(lease.grant_time(), lease.has_grant_time())};
  }
  if (from.has_error()) {
    auto& error = *from.mutable_error();
    to.error = JobError{std::move(*error.mutable_message()), std::move(*error.mutable_type()),
                        std::move(*error.mutable_detail()), error.attempt(),
                        OptionalTime(error.record_time(), error.has_record_time())};
  }
  if (from.has_result()) to.result = TakePayload(*from.mutable_result());
  if (from.has_progress()) {
    to.progress = Progress{from.progress().fraction(), std::move(*from.mutable_progress()->mutable_message())};
  }
  if (from.has_backoff()) to.backoff = TakeBackoff(from.backoff());
  return to;
}

ClaimedJob TakeClaimed(v1::ClaimedJob& from, SteadyTime sent) {
  return ClaimedJob{TakeJob(*from.mutable_job()), std::move(*from.mutable_lease_token()),
                    FromProto(from.lease_duration()), sent};
}

Settled TakeSettled(v1::SettleResult& from) {
  Settled to;
  to.state = v1::JobState_IsValid(from.state()) ? static_cast<JobState>(from.state()) : JobState::kUnknown;
  to.due_time = OptionalTime(from.due_time(), from.has_due_time());
  for (auto& id : *from.mutable_follow_up_ids()) to.follow_up_ids.push_back(std::move(id));
  to.replayed = from.replayed();
  return to;
}

Queue TakeQueue(v1::Queue& from) {
  Queue to;
  to.name = std::move(*from.mutable_name());
  const v1::QueueSettings& settings = from.settings();
  if (settings.max_attempts() > 0) to.settings.max_attempts = settings.max_attempts();
  if (settings.crash_budget() > 0) to.settings.crash_budget = settings.crash_budget();
  if (settings.has_backoff()) to.settings.backoff = TakeBackoff(settings.backoff());
  if (settings.max_depth() > 0) to.settings.max_depth = settings.max_depth();
  if (settings.max_tenant_depth() > 0) to.settings.max_tenant_depth = settings.max_tenant_depth();
  if (!settings.description().empty()) to.settings.description = settings.description();
  if (settings.groups_skip_retrying()) to.settings.groups_skip_retrying = true;
  if (settings.fair_tenants()) to.settings.fair_tenants = true;
  if (settings.has_priority_ageing()) to.settings.priority_ageing = FromProto(settings.priority_ageing());
  if (!settings.dead_letter_queue().empty()) to.settings.dead_letter_queue = settings.dead_letter_queue();
  if (settings.dead_letter_jobs_per_second() > 0) {
    to.settings.dead_letter_jobs_per_second = settings.dead_letter_jobs_per_second();
  }
  if (settings.has_start_within()) to.settings.start_within = FromProto(settings.start_within());
  to.paused = from.paused();
  to.create_time = OptionalTime(from.create_time(), from.has_create_time());
  const v1::QueueStats& stats = from.stats();
  to.stats = {.scheduled = stats.scheduled(),
              .blocked = stats.blocked(),
              .ready = stats.ready(),
              .leased = stats.leased(),
              .suspended = stats.suspended(),
              .completed_total = stats.completed_total(),
              .discarded_total = stats.discarded_total(),
              .cancelled_total = stats.cancelled_total(),
              .expired_total = stats.expired_total(),
              .enqueued_total = stats.enqueued_total(),
              .oldest_ready_age = stats.has_oldest_ready_age()
                                      ? std::optional<Duration>(FromProto(stats.oldest_ready_age()))
                                      : std::nullopt};
  return to;
}

Notice TakeNotice(v1::Notice& from) {
  Notice to;
  to.id = std::move(*from.mutable_id());
  to.type = v1::NoticeType_IsValid(from.type()) ? static_cast<NoticeType>(from.type()) : NoticeType::kUnknown;
  to.job_id = std::move(*from.mutable_job_id());
  to.token_number = from.token_number();
  to.reason = std::move(*from.mutable_reason());
  return to;
}

Server TakeServer(const v1::Server& from) {
  return Server{from.replica_id(),
                from.name(),
                from.version(),
                OptionalTime(from.start_time(), from.has_start_time()),
                OptionalTime(from.heartbeat_time(), from.has_heartbeat_time()),
                from.draining(),
                {from.leads().begin(), from.leads().end()}};
}

}  // namespace tenure::client::internal

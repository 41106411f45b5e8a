#include "server/rpc/conversion.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "server/base/status.h"
#include "server/rpc/text.h"
#include "server/store/admission.h"

namespace tenure::rpc {
namespace {

constexpr absl::Duration kMinLease = absl::Seconds(1);
constexpr absl::Duration kMaxLease = absl::Hours(12);
constexpr absl::Duration kDefaultLease = absl::Seconds(30);
constexpr absl::Duration kMonth = absl::Hours(24 * 30);
constexpr size_t kMaxKey = 255;
constexpr size_t kMaxRequestId = 128;
constexpr size_t kMaxErrorText = 64 << 10;
constexpr size_t kMaxErrorType = 255;
constexpr size_t kMaxNote = 1024;
constexpr int kMaxClaimedJobs = 1000;
constexpr int kMaxPriority = 100;
constexpr int64_t kDefaultClaimBytes = 3 << 20;
constexpr int64_t kMaxClaimBytes = 64 << 20;

// max_attempts and crash_budget: 0 is "the default".
absl::StatusOr<std::optional<int32_t>> BudgetFrom(const Field& field, int32_t value, int32_t max) {
  if (value == 0) return std::optional<int32_t>();
  TENURE_RETURN_IF_ERROR(CheckRange(field, value, 1, max));
  return std::optional<int32_t>(value);
}

// A job that expires before it is due could never run.
absl::Status CheckExpiry(const Field& field, const store::NewJob& job) {
  const absl::Time now = absl::Now();
  const absl::Duration due_in = job.due ? *job.due - now : job.delay.value_or(absl::ZeroDuration());
  const absl::Duration expires_in = job.expires ? *job.expires - now : job.ttl.value_or(absl::InfiniteDuration());
  if (due_in <= absl::ZeroDuration() || expires_in > due_in) return absl::OkStatus();
  return Invalid(
      field / (job.ttl ? "ttl" : "expire_time"),
      absl::StrCat("must be after ", job.due ? "due_time" : "delay", ": the job would expire before it is due"));
}

absl::Status TimesFrom(const Field& field, const v1::JobSpec& spec, store::NewJob& job) {
  if (spec.has_due_time() && spec.has_delay())
    return Invalid(field / "delay", "only one of due_time and delay may be set");
  if (spec.has_expire_time() && spec.has_ttl())
    return Invalid(field / "ttl", "only one of expire_time and ttl may be set");
  if (spec.has_due_time()) {
    TENURE_ASSIGN_OR_RETURN(job.due, TimeFrom(field / "due_time", spec.due_time()));
    if (*job.due > absl::Now() + kTenYears) return Invalid(field / "due_time", "must be within the next 10 years");
  }
  if (spec.has_delay()) {
    TENURE_ASSIGN_OR_RETURN(job.delay, DurationIn(field / "delay", spec.delay(), absl::ZeroDuration(), kTenYears));
  }
  if (spec.has_expire_time()) {
    TENURE_ASSIGN_OR_RETURN(job.expires, TimeFrom(field / "expire_time", spec.expire_time()));
  }
  if (spec.has_ttl()) {
    TENURE_ASSIGN_OR_RETURN(job.ttl, DurationIn(field / "ttl", spec.ttl(), absl::Milliseconds(1), kTenYears));
  }
  return CheckExpiry(field, job);
}

// Sorted and distinct: everybody passes the gates of keys in one order.
absl::Status KeysFrom(const Field& field, const v1::JobSpec& spec, store::NewJob& job) {
  TENURE_RETURN_IF_ERROR(
      CheckCount(field / "concurrency_keys", spec.concurrency_keys_size(), 0, store::kMaxKeys, "keys"));
  for (int i = 0; i < spec.concurrency_keys_size(); ++i) {
    TENURE_RETURN_IF_ERROR(CheckText(field.Item("concurrency_keys", i), spec.concurrency_keys(i), 1, kMaxKey));
    job.concurrency_keys.push_back(spec.concurrency_keys(i));
  }
  std::sort(job.concurrency_keys.begin(), job.concurrency_keys.end());
  job.concurrency_keys.erase(std::unique(job.concurrency_keys.begin(), job.concurrency_keys.end()),
                             job.concurrency_keys.end());
  return absl::OkStatus();
}

constexpr absl::Duration kMaxUniquePeriod = absl::Hours(24 * 365);

absl::StatusOr<store::Unique> UniqueFrom(const Field& field, v1::Unique& unique) {
  store::Unique out;
  TENURE_RETURN_IF_ERROR(CheckText(field / "key", unique.key(), 1, kMaxKey));
  if (!v1::UniqueScope_IsValid(unique.scope())) {
    return Invalid(field / "scope", absl::StrCat("is ", static_cast<int>(unique.scope()), "; there is no such scope"));
  }
  out.by_kind = unique.scope() == v1::UNIQUE_SCOPE_KIND;
  if (!v1::UniqueConflict_IsValid(unique.on_conflict())) {
    return Invalid(field / "on_conflict",
                   absl::StrCat("is ", static_cast<int>(unique.on_conflict()), "; there is no such policy"));
  }
  if (unique.on_conflict() != v1::UNIQUE_CONFLICT_UNSPECIFIED) {
    out.on_conflict = static_cast<store::OnConflict>(unique.on_conflict());
  }
  const bool changes = out.on_conflict != store::OnConflict::kReturn && out.on_conflict != store::OnConflict::kReject;
  std::set<store::JobState> states;
  for (int i = 0; i < unique.states_size(); ++i) {
    const int state = unique.states(i);
    if (state < v1::JOB_STATE_SCHEDULED || state > (changes ? v1::JOB_STATE_READY : v1::JOB_STATE_SUSPENDED)) {
      return Invalid(field.Item("states", i),
                     changes
                         ? "must be JOB_STATE_SCHEDULED, _BLOCKED or _READY: with this policy the job is changed, and "
                           "one that has been claimed cannot be"
                         : "must be a live state; for jobs that have ended there is period");
    }
    states.insert(static_cast<store::JobState>(state));
  }
  if (states.empty()) {
    states = {store::JobState::kScheduled, store::JobState::kBlocked, store::JobState::kReady};
    if (!changes) states.insert({store::JobState::kLeased, store::JobState::kSuspended});
  }
  out.states.assign(states.begin(), states.end());
  if (unique.has_period()) {
    if (changes) {
      return Invalid(field / "period", "only with RETURN_EXISTING and REJECT: a job that has ended cannot be changed");
    }
    TENURE_ASSIGN_OR_RETURN(out.period,
                            DurationIn(field / "period", unique.period(), absl::Milliseconds(1), kMaxUniquePeriod));
  }
  out.key = std::move(*unique.mutable_key());
  return out;
}

// `index`: its own in the call.
absl::StatusOr<store::DependsOn> DependsOnFrom(const Field& field, const v1::DependsOn& depends_on, int index) {
  store::DependsOn out;
  const int count = depends_on.job_ids_size() + depends_on.items_size();
  if (count < 1 || count > store::kMaxDependencies) {
    return Invalid(field, absl::StrCat("names ", count, " jobs; job_ids and items together must be 1 to ",
                                       store::kMaxDependencies));
  }
  for (int i = 0; i < depends_on.job_ids_size(); ++i) {
    TENURE_ASSIGN_OR_RETURN(store::JobId id,
                            store::JobId::Parse(depends_on.job_ids(i), field.Item("job_ids", i).ToString()));
    out.jobs.push_back(id);
  }
  for (int i = 0; i < depends_on.items_size(); ++i) {
    if (depends_on.items(i) < 0 || depends_on.items(i) >= index) {
      return Invalid(field.Item("items", i),
                     absl::StrCat("is ", depends_on.items(i), "; it must be the index of an earlier job of the call"));
    }
    out.items.push_back(depends_on.items(i));
  }
  if (!v1::DependencyCondition_IsValid(depends_on.condition())) {
    return Invalid(field / "condition",
                   absl::StrCat("is ", static_cast<int>(depends_on.condition()), "; there is no such condition"));
  }
  if (!v1::DependencyFailure_IsValid(depends_on.on_failure())) {
    return Invalid(field / "on_failure",
                   absl::StrCat("is ", static_cast<int>(depends_on.on_failure()), "; there is no such policy"));
  }
  out.all_ended = depends_on.condition() == v1::DEPENDENCY_CONDITION_ENDED;
  out.release_on_failure = depends_on.on_failure() == v1::DEPENDENCY_FAILURE_RELEASE;
  return out;
}

// What both forms of Claim share.
template <typename Call>
absl::Status ClaimCommon(v1::ClaimRequest& request, Call& call) {
  TENURE_RETURN_IF_ERROR(CheckText(Field("worker_id"), request.worker_id(), 1, kMaxKey));
  TENURE_RETURN_IF_ERROR(CheckText(Field("request_id"), request.request_id(), 0, kMaxRequestId));
  call.lease = kDefaultLease;
  if (request.has_lease_duration()) {
    TENURE_ASSIGN_OR_RETURN(call.lease,
                            DurationIn(Field("lease_duration"), request.lease_duration(), kMinLease, kMaxLease));
  }
  call.max_bytes = kDefaultClaimBytes;
  if (request.max_bytes() != 0) {
    TENURE_RETURN_IF_ERROR(CheckRange(Field("max_bytes"), request.max_bytes(), 1, kMaxClaimBytes));
    call.max_bytes = request.max_bytes();
  }
  call.worker = std::move(*request.mutable_worker_id());
  call.request_id = std::move(*request.mutable_request_id());
  return absl::OkStatus();
}

absl::Status QueuesFrom(v1::ClaimRequest& request, engine::ClaimCall& call) {
  TENURE_RETURN_IF_ERROR(CheckCount(Field("queues"), request.queues_size(), 1, 1000, "queues"));
  std::unordered_set<std::string_view> names;
  for (int i = 0; i < request.queues_size(); ++i) {
    const Field field("queues", i);
    const v1::QueueSelection& queue = request.queues(i);
    TENURE_RETURN_IF_ERROR(CheckQueueName(field / "queue", queue.queue()));
    if (!names.insert(queue.queue()).second)
      return Invalid(field / "queue", "names a queue that is already in the list");
    TENURE_ASSIGN_OR_RETURN(int32_t weight, NumberOr(field / "weight", queue.weight(), 1, 1, 1000));
    call.queues.push_back({queue.queue(), weight});
  }
  return absl::OkStatus();
}

absl::Status ReservationsFrom(const v1::ClaimRequest& request, engine::ClaimCall& call) {
  TENURE_RETURN_IF_ERROR(CheckCount(Field("exclude_tenants"), request.exclude_tenants_size(), 0, 100, "tenants"));
  for (int i = 0; i < request.exclude_tenants_size(); ++i) {
    TENURE_RETURN_IF_ERROR(CheckText(Field("exclude_tenants", i), request.exclude_tenants(i), 0, kMaxKey));
    call.exclude_tenants.push_back(request.exclude_tenants(i));
  }
  TENURE_RETURN_IF_ERROR(CheckCount(Field("reservations"), request.reservations_size(), 0, 10, "reservations"));
  int64_t reserved = 0;
  for (int i = 0; i < request.reservations_size(); ++i) {
    const Field field("reservations", i);
    const v1::SlotReservation& reservation = request.reservations(i);
    TENURE_RETURN_IF_ERROR(CheckRange(field / "min_priority", reservation.min_priority(), -kMaxPriority, kMaxPriority));
    if (reservation.slots() < 1) return Invalid(field / "slots", "must be at least 1");
    reserved += reservation.slots();
    call.reservations.push_back({static_cast<int16_t>(reservation.min_priority()), reservation.slots()});
  }
  if (reserved > call.max_jobs) {
    return Invalid(Field("reservations"),
                   absl::StrCat("reserve ", reserved, " slots together; max_jobs allows ", call.max_jobs));
  }
  return absl::OkStatus();
}

absl::StatusOr<store::LeaseToken> TokenFrom(const Field& field, const std::string& token) {
  auto parsed = store::LeaseToken::Parse(token, "");
  if (parsed.ok()) return parsed;
  // Parsed with no name first: the path is put into words for the few that are wrong.
  return store::LeaseToken::Parse(token, (field / "lease_token").ToString());
}

absl::Status Order(const google::protobuf::Timestamp& from, const google::protobuf::Timestamp& to, bool both,
                   std::string_view from_name, std::string_view to_name) {
  if (!both || from.seconds() < to.seconds() || (from.seconds() == to.seconds() && from.nanos() < to.nanos())) {
    return absl::OkStatus();
  }
  return Invalid(Field(to_name),
                 absl::StrCat("must lie after ", absl::string_view(from_name.data(), from_name.size())));
}

}  // namespace

absl::StatusOr<engine::EnqueueItem> JobFrom(const Field& field, v1::JobSpec& spec, const Limits& limits) {
  engine::EnqueueItem item;
  store::NewJob& job = item.job;
  TENURE_RETURN_IF_ERROR(CheckQueueName(field / "queue", spec.queue()));
  TENURE_RETURN_IF_ERROR(CheckKind(field / "kind", spec.kind()));
  TENURE_RETURN_IF_ERROR(CheckHeaders(field / "headers", spec.headers()));
  TENURE_RETURN_IF_ERROR(CheckRange(field / "priority", spec.priority(), -kMaxPriority, kMaxPriority));
  TENURE_RETURN_IF_ERROR(CheckText(field / "tenant", spec.tenant(), 0, kMaxKey));
  TENURE_RETURN_IF_ERROR(CheckText(field / "idempotency_key", spec.idempotency_key(), 0, kMaxKey));
  TENURE_RETURN_IF_ERROR(CheckText(field / "effect_key", spec.effect_key(), 0, kMaxKey));
  TENURE_RETURN_IF_ERROR(CheckText(field / "group_key", spec.group_key(), 0, kMaxKey));
  TENURE_RETURN_IF_ERROR(KeysFrom(field, spec, job));
  TENURE_RETURN_IF_ERROR(TimesFrom(field, spec, job));
  TENURE_ASSIGN_OR_RETURN(job.max_attempts, BudgetFrom(field / "max_attempts", spec.max_attempts(), 10'000));
  TENURE_ASSIGN_OR_RETURN(job.crash_budget, BudgetFrom(field / "crash_budget", spec.crash_budget(), 1'000));
  if (spec.has_backoff()) {
    TENURE_ASSIGN_OR_RETURN(job.backoff, BackoffFrom(field / "backoff", spec.backoff()));
  }
  if (spec.has_idempotency_retention()) {
    TENURE_ASSIGN_OR_RETURN(
        job.idempotency_retention,
        DurationIn(field / "idempotency_retention", spec.idempotency_retention(), absl::Seconds(1), kMonth));
  }
  if (spec.has_depends_on()) {
    TENURE_ASSIGN_OR_RETURN(job.depends_on, DependsOnFrom(field / "depends_on", spec.depends_on(), field.index()));
  }
  if (spec.has_unique()) {
    TENURE_ASSIGN_OR_RETURN(job.unique, UniqueFrom(field / "unique", *spec.mutable_unique()));
  }
  if (spec.has_payload()) {
    TENURE_ASSIGN_OR_RETURN(job.payload, PayloadFrom(field / "payload", *spec.mutable_payload(), limits));
  } else {
    job.payload.content_type = "application/octet-stream";
  }
  // Nothing fails from here on: the strings may go.
  for (auto& [key, value] : *spec.mutable_headers()) job.headers.emplace(key, std::move(value));
  job.priority = static_cast<int16_t>(spec.priority());
  item.queue = std::move(*spec.mutable_queue());
  job.kind = std::move(*spec.mutable_kind());
  job.tenant = std::move(*spec.mutable_tenant());
  job.idempotency_key = std::move(*spec.mutable_idempotency_key());
  job.effect_key = std::move(*spec.mutable_effect_key());
  job.group = std::move(*spec.mutable_group_key());
  return item;
}

absl::StatusOr<store::ListFilter> ListFilterFrom(const v1::ListRequest& request) {
  store::ListFilter filter;
  if (!request.queue().empty()) TENURE_RETURN_IF_ERROR(CheckQueueName(Field("queue"), request.queue()));
  TENURE_RETURN_IF_ERROR(CheckCount(Field("kinds"), request.kinds_size(), 0, 100, "kinds"));
  for (int i = 0; i < request.kinds_size(); ++i) {
    TENURE_RETURN_IF_ERROR(CheckKind(Field("kinds", i), request.kinds(i)));
    filter.kinds.push_back(request.kinds(i));
  }
  std::set<store::JobState> states;
  for (int i = 0; i < request.states_size(); ++i) {
    const int state = request.states(i);
    if (state == v1::JOB_STATE_UNSPECIFIED || !v1::JobState_IsValid(state)) {
      return Invalid(Field("states", i), absl::StrCat("is ", state, "; there is no such state"));
    }
    states.insert(static_cast<store::JobState>(state));
  }
  TENURE_RETURN_IF_ERROR(CheckHeaders(Field("headers"), request.headers()));
  filter.headers.insert(request.headers().begin(), request.headers().end());
  TENURE_RETURN_IF_ERROR(CheckText(Field("holder"), request.holder(), 0, kMaxKey));
  filter.holder = request.holder();
  if (!filter.holder.empty()) {
    if (!states.empty() && !states.contains(store::JobState::kLeased)) {
      return Invalid(Field("states"), "must hold JOB_STATE_LEASED, or nothing, when holder is set");
    }
    states = {store::JobState::kLeased};
  }
  if (states.empty()) {
    states = {store::JobState::kScheduled, store::JobState::kBlocked, store::JobState::kReady, store::JobState::kLeased,
              store::JobState::kSuspended};
  }
  filter.states.assign(states.begin(), states.end());

  struct Bound {
    bool set;
    const google::protobuf::Timestamp& value;
    std::string_view name;
    std::optional<absl::Time>& out;
  };
  const Bound bounds[] = {
      {request.has_created_after(), request.created_after(), "created_after", filter.created_after},
      {request.has_created_before(), request.created_before(), "created_before", filter.created_before},
      {request.has_updated_after(), request.updated_after(), "updated_after", filter.updated_after},
      {request.has_updated_before(), request.updated_before(), "updated_before", filter.updated_before},
      {request.has_due_after(), request.due_after(), "due_after", filter.due_after},
      {request.has_due_before(), request.due_before(), "due_before", filter.due_before},
  };
  for (const Bound& bound : bounds) {
    if (!bound.set) continue;
    TENURE_ASSIGN_OR_RETURN(bound.out, TimeFrom(Field(bound.name), bound.value));
  }
  for (size_t i = 0; i < std::size(bounds); i += 2) {
    TENURE_RETURN_IF_ERROR(Order(bounds[i].value, bounds[i + 1].value, bounds[i].set && bounds[i + 1].set,
                                 bounds[i].name, bounds[i + 1].name));
  }
  TENURE_ASSIGN_OR_RETURN(filter.page_size, PageSizeFrom(request.page_size(), 50));
  filter.include_payloads = request.include_payloads();
  return filter;
}

absl::StatusOr<engine::ClaimCall> ClaimFrom(v1::ClaimRequest& request) {
  engine::ClaimCall call;
  TENURE_RETURN_IF_ERROR(ClaimCommon(request, call));
  TENURE_RETURN_IF_ERROR(QueuesFrom(request, call));
  if (!v1::QueueOrder_IsValid(request.order())) {
    return Invalid(Field("order"), absl::StrCat("is ", static_cast<int>(request.order()), "; there is no such order"));
  }
  call.weighted = request.order() == v1::QUEUE_ORDER_WEIGHTED;
  TENURE_ASSIGN_OR_RETURN(call.max_jobs, NumberOr(Field("max_jobs"), request.max_jobs(), 1, 1, kMaxClaimedJobs));
  TENURE_RETURN_IF_ERROR(ReservationsFrom(request, call));
  TENURE_ASSIGN_OR_RETURN(call.wait, WaitFrom(request.has_wait(), request.wait()));
  return call;
}

absl::StatusOr<engine::NamedClaimCall> NamedClaimFrom(v1::ClaimRequest& request) {
  engine::NamedClaimCall call;
  TENURE_RETURN_IF_ERROR(CheckCount(Field("job_ids"), request.job_ids_size(), 1, kMaxClaimedJobs, "ids"));
  TENURE_RETURN_IF_ERROR(ClaimCommon(request, call));
  return call;
}

absl::StatusOr<absl::Duration> WaitFrom(bool has_wait, const google::protobuf::Duration& wait) {
  if (!has_wait) return absl::ZeroDuration();
  return DurationIn(Field("wait"), wait, absl::ZeroDuration(), kMaxWait);
}

absl::StatusOr<store::ExtendItem> ExtendFrom(const Field& field, v1::ExtendItem& item) {
  store::ExtendItem out;
  TENURE_ASSIGN_OR_RETURN(out.token, TokenFrom(field, item.lease_token()));
  if (item.has_duration()) {
    TENURE_ASSIGN_OR_RETURN(out.duration, DurationIn(field / "duration", item.duration(), kMinLease, kMaxLease));
  }
  if (item.has_progress()) {
    const double fraction = item.progress().fraction();
    if (!(fraction >= 0 && fraction <= 1)) {
      return Invalid(field / "progress.fraction", absl::StrCat("is ", fraction, "; it must be from 0 to 1"));
    }
    out.progress =
        store::Progress{fraction, SanitizeText(std::move(*item.mutable_progress()->mutable_message()), kMaxNote)};
  }
  return out;
}

absl::StatusOr<engine::CompleteItem> CompleteFrom(const Field& field, v1::CompleteItem& item, const Limits& limits) {
  engine::CompleteItem out;
  TENURE_ASSIGN_OR_RETURN(out.token, TokenFrom(field, item.lease_token()));
  if (item.has_result()) {
    TENURE_ASSIGN_OR_RETURN(out.result, PayloadFrom(field / "result", *item.mutable_result(), limits));
  }
  TENURE_RETURN_IF_ERROR(CheckCount(field / "follow_ups", item.follow_ups_size(), 0, 100, "jobs"));
  out.follow_ups.reserve(static_cast<size_t>(item.follow_ups_size()));
  for (int i = 0; i < item.follow_ups_size(); ++i) {
    TENURE_ASSIGN_OR_RETURN(engine::EnqueueItem job,
                            JobFrom(field.Item("follow_ups", i), *item.mutable_follow_ups(i), limits));
    if (job.job.depends_on) {
      return Invalid(field.Item("follow_ups", i) / "depends_on", "is not allowed for a follow-up");
    }
    if (job.job.unique && job.job.unique->on_conflict == store::OnConflict::kReject) {
      return Invalid(field.Item("follow_ups", i) / "unique.on_conflict",
                     "cannot be REJECT for a follow-up: the job is completed in any case");
    }
    out.follow_ups.push_back(std::move(job));
  }
  return out;
}

absl::StatusOr<store::FailItem> FailFrom(const Field& field, v1::FailItem& item) {
  store::FailItem out;
  TENURE_ASSIGN_OR_RETURN(out.token, TokenFrom(field, item.lease_token()));
  if (item.has_error()) {
    v1::JobError& error = *item.mutable_error();
    out.error.message = SanitizeText(std::move(*error.mutable_message()), kMaxErrorText);
    out.error.type = SanitizeText(std::move(*error.mutable_type()), kMaxErrorType);
    out.error.detail = SanitizeText(std::move(*error.mutable_detail()), kMaxErrorText);
  }
  out.non_retryable = item.non_retryable();
  if (item.has_retry_after()) {
    TENURE_ASSIGN_OR_RETURN(out.retry_after,
                            DurationIn(field / "retry_after", item.retry_after(), absl::ZeroDuration(), kMonth));
  }
  if (item.has_pause_key_for()) {
    TENURE_ASSIGN_OR_RETURN(out.pause_for, DurationIn(field / "pause_key_for", item.pause_key_for(),
                                                      absl::ZeroDuration(), absl::Hours(24)));
  }
  TENURE_RETURN_IF_ERROR(CheckText(field / "pause_key", item.pause_key(), 0, kMaxKey));
  if (!item.pause_key().empty() && !item.has_pause_key_for()) {
    return Invalid(field / "pause_key", "needs pause_key_for");
  }
  out.pause_key = std::move(*item.mutable_pause_key());
  return out;
}

absl::StatusOr<store::GiveBackItem> ReleaseFrom(const Field& field, v1::ReleaseItem& item) {
  store::GiveBackItem out;
  TENURE_ASSIGN_OR_RETURN(out.token, TokenFrom(field, item.lease_token()));
  if (item.has_delay()) {
    TENURE_ASSIGN_OR_RETURN(out.delay,
                            DurationIn(field / "delay", item.delay(), absl::ZeroDuration(), absl::Hours(12)));
  }
  return out;
}

absl::StatusOr<store::GiveBackItem> SnoozeFrom(const Field& field, v1::SnoozeItem& item) {
  store::GiveBackItem out;
  TENURE_ASSIGN_OR_RETURN(out.token, TokenFrom(field, item.lease_token()));
  if (!item.has_delay()) return Invalid(field / "delay", "is required");
  TENURE_ASSIGN_OR_RETURN(out.delay, DurationIn(field / "delay", item.delay(), absl::Milliseconds(1), kTenYears));
  return out;
}

// 0 is "no bound".
absl::StatusOr<std::optional<int64_t>> DepthFrom(const Field& field, int64_t value, int64_t most) {
  if (value == 0) return std::nullopt;
  if (value < 1 || value > most) {
    return Invalid(field, absl::StrCat("is ", value, "; it must be from 1 to ", most, ", or 0 for no bound"));
  }
  return value;
}

absl::StatusOr<store::QueueSettings> SettingsFrom(const v1::QueueSettings& settings, std::set<std::string>* set) {
  const Field field("settings");
  store::QueueSettings out;
  TENURE_ASSIGN_OR_RETURN(out.max_attempts, BudgetFrom(field / "max_attempts", settings.max_attempts(), 10'000));
  TENURE_ASSIGN_OR_RETURN(out.crash_budget, BudgetFrom(field / "crash_budget", settings.crash_budget(), 1'000));
  if (settings.has_backoff()) {
    TENURE_ASSIGN_OR_RETURN(out.backoff, BackoffFrom(field / "backoff", settings.backoff()));
  }
  TENURE_ASSIGN_OR_RETURN(out.max_depth, DepthFrom(field / "max_depth", settings.max_depth(), 1'000'000'000));
  TENURE_ASSIGN_OR_RETURN(out.max_tenant_depth,
                          DepthFrom(field / "max_tenant_depth", settings.max_tenant_depth(), 1'000'000));
  TENURE_RETURN_IF_ERROR(CheckText(field / "description", settings.description(), 0, kMaxNote));
  out.description = settings.description();
  out.skip_retrying = settings.groups_skip_retrying();
  out.fair_tenants = settings.fair_tenants();
  if (settings.has_priority_ageing() &&
      (settings.priority_ageing().seconds() != 0 || settings.priority_ageing().nanos() != 0)) {
    TENURE_ASSIGN_OR_RETURN(out.priority_ageing, DurationIn(field / "priority_ageing", settings.priority_ageing(),
                                                            absl::Seconds(1), absl::Hours(24)));
  }
  if (settings.has_start_within()) {
    TENURE_ASSIGN_OR_RETURN(out.start_within, DurationIn(field / "start_within", settings.start_within(),
                                                         absl::Milliseconds(1), kTenYears));
  }
  if (!settings.dead_letter_queue().empty()) {
    TENURE_RETURN_IF_ERROR(CheckQueueName(field / "dead_letter_queue", settings.dead_letter_queue()));
    out.dead_letter_queue = settings.dead_letter_queue();
  }
  TENURE_ASSIGN_OR_RETURN(out.dead_letter_rate, BudgetFrom(field / "dead_letter_jobs_per_second",
                                                           settings.dead_letter_jobs_per_second(), 100'000));
  if (set != nullptr) {
    if (out.max_attempts) set->insert("max_attempts");
    if (out.crash_budget) set->insert("crash_budget");
    if (out.backoff) set->insert("backoff");
    if (!out.description.empty()) set->insert("description");
    if (out.max_depth) set->insert("max_depth");
    if (out.max_tenant_depth) set->insert("max_tenant_depth");
    if (out.skip_retrying) set->insert("groups_skip_retrying");
    if (out.fair_tenants) set->insert("fair_tenants");
    if (out.priority_ageing) set->insert("priority_ageing");
    if (out.start_within) set->insert("start_within");
    if (!out.dead_letter_queue.empty()) set->insert("dead_letter_queue");
    if (out.dead_letter_rate) set->insert("dead_letter_jobs_per_second");
  }
  return out;
}

absl::StatusOr<std::set<std::string>> UpdatedFields(const v1::UpdateQueueRequest& request, std::set<std::string> set) {
  static const std::set<std::string> kAll = {
      "max_attempts",         "crash_budget",      "backoff",
      "description",          "max_depth",         "max_tenant_depth",
      "groups_skip_retrying", "fair_tenants",      "priority_ageing",
      "start_within",         "dead_letter_queue", "dead_letter_jobs_per_second"};
  if (!request.has_update_mask() || request.update_mask().paths().empty()) {
    if (set.empty())
      return Invalid(Field("settings"), "sets nothing; set a field, or name one in update_mask to reset it");
    return set;
  }
  std::set<std::string> fields;
  for (const std::string& path : request.update_mask().paths()) {
    if (path == "*") return kAll;
    if (!kAll.contains(path)) {
      return Invalid(Field("update_mask"),
                     absl::StrCat("names '", SanitizeText(path, 100), "'; the fields are ", absl::StrJoin(kAll, ", ")));
    }
    fields.insert(path);
  }
  return fields;
}

absl::StatusOr<int32_t> PageSizeFrom(int32_t page_size, int32_t fallback) {
  return NumberOr(Field("page_size"), page_size, fallback, 1, 1000);
}

}  // namespace tenure::rpc

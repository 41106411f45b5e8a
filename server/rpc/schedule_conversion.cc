#include "server/rpc/schedule_conversion.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/status.h"
#include "server/base/time_zone.h"
#include "server/rpc/conversion.h"
#include "server/rpc/text.h"
#include "server/store/schedule_timing.h"

namespace tenure::rpc {
namespace {

constexpr size_t kMaxNote = 1024;

static_assert(static_cast<int>(store::Overlap::kAllow) == v1::OVERLAP_POLICY_ALLOW);
static_assert(static_cast<int>(store::Overlap::kSkip) == v1::OVERLAP_POLICY_SKIP);
static_assert(static_cast<int>(store::Overlap::kCancelPrevious) == v1::OVERLAP_POLICY_CANCEL_PREVIOUS);

// The fields of a JobSpec that the slot decides, or that would be the same for all jobs of a schedule.
absl::Status CheckAllowed(const Field& field, const v1::JobSpec& job) {
  if (job.has_due_time()) return Invalid(field / "due_time", "is not allowed in a schedule: the slot says when");
  if (job.has_delay()) return Invalid(field / "delay", "is not allowed in a schedule: the slot says when");
  if (job.has_expire_time()) {
    return Invalid(field / "expire_time", "is not allowed in a schedule; ttl counts from each job's making");
  }
  if (!job.idempotency_key().empty() || job.has_idempotency_retention()) {
    return Invalid(field / "idempotency_key", "is not allowed in a schedule: each slot has one job in any case");
  }
  // What schedules make is stored apart, without these.
  if (job.concurrency_keys_size() > 0) return Invalid(field / "concurrency_keys", "is not allowed in a schedule");
  if (!job.group_key().empty()) return Invalid(field / "group_key", "is not allowed in a schedule");
  if (job.has_unique()) return Invalid(field / "unique", "is not allowed in a schedule; see its overlap policy");
  if (job.has_depends_on()) return Invalid(field / "depends_on", "is not allowed in a schedule");
  if (!job.effect_key().empty()) {
    return Invalid(field / "effect_key", "is not allowed in a schedule: its jobs are different effects");
  }
  return absl::OkStatus();
}

// What is set in `spec`; `set` gets the names.
absl::StatusOr<store::ScheduleSettings> SpecFrom(const Field& field, v1::ScheduleSpec& spec, const Limits& limits,
                                                 std::set<std::string>& set) {
  store::ScheduleSettings out;
  if (!spec.time_zone().empty()) {
    const absl::StatusOr<absl::TimeZone> zone = LoadZone(spec.time_zone());
    if (!zone.ok()) {
      const absl::string_view rule = zone.status().message();
      return Invalid(field / "time_zone", std::string(rule));
    }
    if (spec.timing_case() == v1::ScheduleSpec::kInterval) {
      return Invalid(field / "time_zone", "goes with cron; an interval is the same everywhere");
    }
    out.timing.time_zone = spec.time_zone();
    set.insert("time_zone");
  }
  if (spec.timing_case() == v1::ScheduleSpec::kCron) {
    out.timing.cron = spec.cron();
    if (out.timing.cron.empty()) return Invalid(field / "cron", "is empty; it is an expression such as '0 6 * * *'");
    set.insert("cron");
  } else if (spec.timing_case() == v1::ScheduleSpec::kInterval) {
    TENURE_ASSIGN_OR_RETURN(out.timing.interval,
                            DurationIn(field / "interval", spec.interval(), store::kMinInterval, store::kMaxInterval));
    out.timing.interval = absl::Floor(out.timing.interval, absl::Microseconds(1));
    set.insert("interval");
  }
  if (spec.timing_case() != v1::ScheduleSpec::TIMING_NOT_SET) {
    TENURE_RETURN_IF_ERROR(store::Timing::Make(out.timing, absl::StrCat(field.ToString(), ".")).status());
  }
  if (spec.has_job()) {
    const Field job_field = field / "job";
    TENURE_RETURN_IF_ERROR(CheckAllowed(job_field, spec.job()));
    TENURE_ASSIGN_OR_RETURN(engine::EnqueueItem item, JobFrom(job_field, *spec.mutable_job(), limits));
    out.queue = std::move(item.queue);
    out.job = std::move(item.job);
    set.insert("job");
  }
  if (spec.overlap_policy() != v1::OVERLAP_POLICY_UNSPECIFIED) {
    if (!v1::OverlapPolicy_IsValid(spec.overlap_policy())) {
      return Invalid(field / "overlap_policy", absl::StrCat("is ", spec.overlap_policy(), "; there is no such policy"));
    }
    out.overlap = static_cast<store::Overlap>(spec.overlap_policy());
    set.insert("overlap_policy");
  }
  if (spec.has_catch_up()) {
    TENURE_RETURN_IF_ERROR(CheckRange(field / "catch_up", spec.catch_up(), 0, kMaxCatchUp));
    out.catch_up = spec.catch_up();
    set.insert("catch_up");
  }
  TENURE_RETURN_IF_ERROR(CheckText(field / "description", spec.description(), 0, kMaxNote));
  if (!spec.description().empty()) {
    out.description = std::move(*spec.mutable_description());
    set.insert("description");
  }
  return out;
}

constexpr absl::string_view kNoTiming = "is required: give cron or interval";

}  // namespace

absl::StatusOr<store::ScheduleSettings> ScheduleFrom(v1::ScheduleSpec& spec, const Limits& limits) {
  const Field field("spec");
  if (spec.timing_case() == v1::ScheduleSpec::TIMING_NOT_SET) {
    return Invalid(field / "cron", std::string(kNoTiming));
  }
  if (!spec.has_job()) return Invalid(field / "job", "is required: the job that each slot makes");
  std::set<std::string> set;
  return SpecFrom(field, spec, limits, set);
}

absl::StatusOr<store::ScheduleSettings> ScheduleUpdateFrom(v1::UpdateScheduleRequest& request, const Limits& limits,
                                                           std::set<std::string>& fields) {
  const Field field("spec");
  std::set<std::string> set;
  TENURE_ASSIGN_OR_RETURN(store::ScheduleSettings settings, SpecFrom(field, *request.mutable_spec(), limits, set));
  fields.clear();
  if (request.update_mask().paths().empty()) {
    fields = std::move(set);
    if (fields.empty()) {
      return Invalid(field, "sets nothing; set a field, or name one in update_mask to reset it");
    }
    return settings;
  }
  const auto& known = store::kScheduleFields;
  for (const std::string& path : request.update_mask().paths()) {
    if (path == "*") {
      fields.insert(std::begin(known), std::end(known));
      fields.erase(set.contains("interval") ? "cron" : "interval");
    } else if (std::find(std::begin(known), std::end(known), path) == std::end(known)) {
      return Invalid(Field("update_mask"),
                     absl::StrCat("names '", SanitizeText(path, 100), "'; the fields are ",
                                  absl::StrJoin(known, ", ", [](std::string* out, std::string_view name) {
                                    out->append(name.data(), name.size());
                                  })));
    } else {
      fields.insert(path);
    }
  }
  if (fields.contains("cron") && fields.contains("interval")) {
    return Invalid(Field("update_mask"), "names both cron and interval; a schedule has one of them");
  }
  for (const char* name : {"cron", "interval"}) {
    if (fields.contains(name) && !set.contains(name)) return Invalid(field / name, std::string(kNoTiming));
  }
  if (fields.contains("job") && !set.contains("job")) {
    return Invalid(field / "job", "is required, since update_mask names it; it has no default");
  }
  return settings;
}

void ToProto(store::Schedule&& schedule, int upcoming, v1::Schedule* out) {
  store::ScheduleSettings& settings = schedule.settings;
  v1::ScheduleSpec& spec = *out->mutable_spec();
  if (schedule.next && *schedule.next != absl::InfiniteFuture()) {
    ToProto(*schedule.next, out->mutable_next_time());
    // The rules were checked when the schedule was written; only a time zone that has gone from this machine fails
    // here.
    if (const absl::StatusOr<store::Timing> timing = store::Timing::Make(settings.timing); timing.ok()) {
      std::optional<absl::Time> slot = schedule.next;
      for (int n = 0; n < upcoming && slot; ++n) {
        ToProto(*slot, out->add_upcoming_times());
        slot = timing->Next(*slot);
      }
    }
  }
  if (settings.timing.cron.empty()) {
    ToProto(settings.timing.interval, spec.mutable_interval());
  } else {
    spec.set_cron(std::move(settings.timing.cron));
    spec.set_time_zone(std::move(settings.timing.time_zone));
  }
  v1::JobSpec& job = *spec.mutable_job();
  job.set_queue(std::move(settings.queue));
  job.set_kind(std::move(settings.job.kind));
  if (!settings.job.payload.content_type.empty()) ToProto(std::move(settings.job.payload), job.mutable_payload());
  for (auto& [key, value] : settings.job.headers) (*job.mutable_headers())[key] = std::move(value);
  job.set_priority(settings.job.priority);
  job.set_tenant(std::move(settings.job.tenant));
  if (settings.job.ttl) ToProto(*settings.job.ttl, job.mutable_ttl());
  job.set_max_attempts(settings.job.max_attempts.value_or(0));
  job.set_crash_budget(settings.job.crash_budget.value_or(0));
  if (settings.job.backoff) ToProto(*settings.job.backoff, job.mutable_backoff());
  spec.set_overlap_policy(static_cast<v1::OverlapPolicy>(settings.overlap));
  spec.set_catch_up(settings.catch_up);
  spec.set_description(std::move(settings.description));

  out->set_name(std::move(schedule.name));
  out->set_paused(schedule.paused);
  if (schedule.last_slot) ToProto(*schedule.last_slot, out->mutable_last_time());
  if (schedule.last_job) out->set_last_job_id(schedule.last_job->ToString());
  out->set_fired_total(schedule.fired);
  out->set_skipped_missed_total(schedule.skipped_missed);
  out->set_skipped_overlap_total(schedule.skipped_overlap);
  ToProto(schedule.created, out->mutable_create_time());
  ToProto(schedule.updated, out->mutable_update_time());
}

}  // namespace tenure::rpc

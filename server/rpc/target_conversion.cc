#include "server/rpc/target_conversion.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/background/registry.h"
#include "server/base/status.h"
#include "server/rpc/conversion.h"
#include "server/rpc/text.h"
#include "server/store/schedule_timing.h"

namespace tenure::rpc {
namespace {

using store::TargetPurpose;

constexpr size_t kMaxNote = 1024;
constexpr int kMaxQueues = 100;
constexpr size_t kMaxZone = 64;
constexpr size_t kMinSecret = 16, kMaxSecret = 256;
constexpr std::string_view kSecretPrefix = "whsec_";

static_assert(static_cast<int>(TargetPurpose::kNotify) == v1::TARGET_PURPOSE_NOTIFY);
static_assert(static_cast<int>(TargetPurpose::kEventLog) == v1::TARGET_PURPOSE_EVENT_LOG);
static_assert(static_cast<int>(TargetPurpose::kExport) == v1::TARGET_PURPOSE_EXPORT);
static_assert(static_cast<int>(TargetPurpose::kInventory) == v1::TARGET_PURPOSE_INVENTORY);
static_assert(static_cast<int>(TargetPurpose::kRelay) == v1::TARGET_PURPOSE_RELAY);
static_assert(static_cast<int>(store::JobState::kCompleted) - 5 == v1::JOB_OUTCOME_COMPLETED);
static_assert(static_cast<int>(store::JobState::kExpired) - 5 == v1::JOB_OUTCOME_EXPIRED);

constexpr Field kSpec("spec");

bool TakesEvents(TargetPurpose purpose) {
  return purpose == TargetPurpose::kNotify || purpose == TargetPurpose::kEventLog;
}

// What is set in `spec`; `set` gets the names.
absl::StatusOr<store::TargetSettings> SpecFrom(v1::TargetSpec& spec, std::set<std::string>& set) {
  store::TargetSettings out;
  out.url = std::move(*spec.mutable_url());
  if (!out.url.empty()) set.insert("url");
  TENURE_RETURN_IF_ERROR(CheckCount(kSpec / "queues", spec.queues_size(), 0, kMaxQueues, "queues"));
  for (int i = 0; i < spec.queues_size(); ++i) {
    TENURE_RETURN_IF_ERROR(CheckQueueName(kSpec.Item("queues", i), spec.queues(i)));
    out.queues.push_back(spec.queues(i));
  }
  std::sort(out.queues.begin(), out.queues.end());
  out.queues.erase(std::unique(out.queues.begin(), out.queues.end()), out.queues.end());
  if (!out.queues.empty()) set.insert("queues");
  for (int i = 0; i < spec.events_size(); ++i) {
    if (!v1::JobOutcome_IsValid(spec.events(i)) || spec.events(i) == v1::JOB_OUTCOME_UNSPECIFIED) {
      return Invalid(kSpec.Item("events", i),
                     absl::StrCat("is ", static_cast<int>(spec.events(i)), "; there is no such outcome"));
    }
    out.events = static_cast<int16_t>(out.events | store::EventBit(static_cast<store::JobState>(spec.events(i) + 5)));
    set.insert("events");
  }
  if (spec.has_interval()) {
    TENURE_ASSIGN_OR_RETURN(out.interval,
                            DurationIn(kSpec / "interval", spec.interval(), absl::Seconds(1), absl::Hours(24 * 31)));
    set.insert("interval");
  }
  TENURE_RETURN_IF_ERROR(CheckText(kSpec / "cron", spec.cron(), 0, CronExpression::kMaxBytes));
  out.cron = std::move(*spec.mutable_cron());
  if (!out.cron.empty()) set.insert("cron");
  TENURE_RETURN_IF_ERROR(CheckText(kSpec / "time_zone", spec.time_zone(), 0, kMaxZone));
  out.time_zone = std::move(*spec.mutable_time_zone());
  if (!out.time_zone.empty()) set.insert("time_zone");
  if (spec.min_age_days() != 0) {
    TENURE_RETURN_IF_ERROR(CheckRange(kSpec / "min_age_days", spec.min_age_days(), 1, 3650));
    out.min_age_days = spec.min_age_days();
    set.insert("min_age_days");
  }
  out.secret = std::move(*spec.mutable_secret());
  if (!out.secret.empty()) set.insert("secret");
  out.region = std::move(*spec.mutable_region());
  if (!out.region.empty()) set.insert("region");
  TENURE_RETURN_IF_ERROR(CheckText(kSpec / "endpoint", spec.endpoint(), 0, 300));
  out.endpoint = std::move(*spec.mutable_endpoint());
  if (!out.endpoint.empty()) set.insert("endpoint");
  TENURE_RETURN_IF_ERROR(CheckText(kSpec / "description", spec.description(), 0, kMaxNote));
  out.description = std::move(*spec.mutable_description());
  if (!out.description.empty()) set.insert("description");
  return out;
}

// Cron and time zone.
absl::Status CheckTiming(const store::TargetSettings& settings) {
  if (settings.cron.empty()) {
    if (!settings.time_zone.empty()) return Invalid(kSpec / "time_zone", "goes with cron");
    return absl::OkStatus();
  }
  if (settings.purpose != TargetPurpose::kInventory) return Invalid(kSpec / "cron", "goes with INVENTORY alone");
  if (settings.interval) return Invalid(kSpec / "cron", "does not go with interval; give one of them");
  return store::Timing::Make(store::TimingOf(settings), "spec.").status();
}

// Never tells the secret itself.
absl::Status CheckSecret(const store::TargetSettings& settings, store::TargetScheme scheme) {
  const Field field = kSpec / "secret";
  const std::string& secret = settings.secret;
  const bool webhook = settings.purpose == TargetPurpose::kNotify && scheme == store::TargetScheme::kHttp;
  if (secret.empty()) {
    if (webhook) return Invalid(field, "is required for a webhook: the receiver knows by it who sends");
    return absl::OkStatus();
  }
  if (!webhook && settings.purpose != TargetPurpose::kRelay) {
    return Invalid(field, "goes with webhooks and relays alone; SQS and S3 take the daemon's AWS credentials");
  }
  if (secret.size() < kMinSecret || secret.size() > kMaxSecret) {
    return Invalid(
        field, absl::StrCat("is ", secret.size(), " bytes long; it must have from ", kMinSecret, " to ", kMaxSecret));
  }
  if (!std::all_of(secret.begin(), secret.end(), [](char c) { return c > 0x20 && c < 0x7f; })) {
    return Invalid(field, "must be printable ASCII without blanks");
  }
  std::string key;
  if (webhook && secret.starts_with(kSecretPrefix) &&
      !absl::Base64Unescape(absl::string_view(secret).substr(kSecretPrefix.size()), &key)) {
    return Invalid(field, "begins with whsec_, so the rest must be base64");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckTarget(const store::TargetSettings& settings) {
  const TargetPurpose purpose = settings.purpose;
  if (settings.url.empty()) return Invalid(kSpec / "url", "is required");
  const auto url = store::ParseTargetUrl(purpose, settings.url, settings.region, settings.endpoint);
  if (!url.ok()) {
    ErrorDetails details = DetailsOf(url.status());
    return InvalidField(absl::StrCat("spec.", details.metadata["field"]), details.metadata["rule"]);
  }
  TENURE_RETURN_IF_ERROR(CheckSecret(settings, url->scheme));
  const bool by_queue = purpose == TargetPurpose::kInventory || purpose == TargetPurpose::kRelay;
  if (by_queue && settings.queues.empty()) return Invalid(kSpec / "queues", "is required for this purpose");
  if (purpose == TargetPurpose::kExport && !settings.queues.empty()) {
    return Invalid(kSpec / "queues", "does not go with EXPORT: it writes whole days, of all queues");
  }
  if (!TakesEvents(purpose) && settings.events != 0) {
    return Invalid(kSpec / "events", "goes with NOTIFY and EVENT_LOG alone");
  }
  if (settings.interval) {
    if (purpose == TargetPurpose::kEventLog) {
      if (*settings.interval > absl::Hours(1))
        return Invalid(kSpec / "interval", "must be from 1s to 1h for EVENT_LOG");
    } else if (purpose == TargetPurpose::kInventory) {
      if (*settings.interval < absl::Minutes(1)) {
        return Invalid(kSpec / "interval", "must be from 1m to 31 days for INVENTORY");
      }
    } else {
      return Invalid(kSpec / "interval", "goes with EVENT_LOG and INVENTORY alone");
    }
  }
  TENURE_RETURN_IF_ERROR(CheckTiming(settings));
  if (settings.min_age_days && purpose != TargetPurpose::kExport) {
    return Invalid(kSpec / "min_age_days", "goes with EXPORT alone");
  }
  return absl::OkStatus();
}

absl::StatusOr<store::TargetSettings> TargetFrom(v1::TargetSpec& spec) {
  if (!v1::TargetPurpose_IsValid(spec.purpose())) {
    return Invalid(kSpec / "purpose",
                   absl::StrCat("is ", static_cast<int>(spec.purpose()), "; there is no such purpose"));
  }
  if (spec.purpose() == v1::TARGET_PURPOSE_UNSPECIFIED) return Invalid(kSpec / "purpose", "is required");
  const auto purpose = static_cast<TargetPurpose>(spec.purpose());
  const auto workers = background::AllWorkers();
  if (std::none_of(workers.begin(), workers.end(),
                   [&](const background::WorkerEntry& entry) { return entry.name == store::PurposeName(purpose); })) {
    return Invalid(kSpec / "purpose", "is not served by this version of the daemon");
  }
  std::set<std::string> set;
  TENURE_ASSIGN_OR_RETURN(store::TargetSettings settings, SpecFrom(spec, set));
  settings.purpose = purpose;
  TENURE_RETURN_IF_ERROR(CheckTarget(settings));
  if (TakesEvents(purpose) && settings.events == 0) settings.events = store::kAllEvents;
  return settings;
}

absl::StatusOr<store::TargetSettings> TargetUpdateFrom(v1::UpdateTargetRequest& request,
                                                       std::set<std::string>& fields) {
  if (request.spec().purpose() != v1::TARGET_PURPOSE_UNSPECIFIED) {
    return Invalid(kSpec / "purpose", "cannot be changed; make another target");
  }
  std::set<std::string> set;
  TENURE_ASSIGN_OR_RETURN(store::TargetSettings settings, SpecFrom(*request.mutable_spec(), set));
  fields.clear();
  if (request.update_mask().paths().empty()) {
    fields = std::move(set);
    if (fields.empty()) return Invalid(kSpec, "sets nothing; set a field, or name one in update_mask to reset it");
    return settings;
  }
  const auto& known = store::kTargetFields;
  for (const std::string& path : request.update_mask().paths()) {
    if (std::find(std::begin(known), std::end(known), path) == std::end(known)) {
      return Invalid(Field("update_mask"),
                     absl::StrCat("names '", SanitizeText(path, 100), "'; the fields are ",
                                  absl::StrJoin(known, ", ", [](std::string* out, std::string_view name) {
                                    out->append(name.data(), name.size());
                                  })));
    }
    fields.insert(path);
  }
  return settings;
}

void ToProto(store::Target&& target, v1::Target* out) {
  store::TargetSettings& settings = target.settings;
  v1::TargetSpec& spec = *out->mutable_spec();
  spec.set_purpose(static_cast<v1::TargetPurpose>(settings.purpose));
  spec.set_url(std::move(settings.url));
  for (std::string& queue : settings.queues) spec.add_queues(std::move(queue));
  for (const store::JobState state : {store::JobState::kCompleted, store::JobState::kDiscarded,
                                      store::JobState::kCancelled, store::JobState::kExpired}) {
    if ((settings.events & store::EventBit(state)) != 0) {
      spec.add_events(static_cast<v1::JobOutcome>(static_cast<int>(state) - 5));
    }
  }
  if (settings.purpose == TargetPurpose::kEventLog) {
    ToProto(settings.interval.value_or(store::kEventLogInterval), spec.mutable_interval());
  } else if (!settings.cron.empty()) {
    spec.set_time_zone(settings.time_zone.empty() ? "UTC" : settings.time_zone);
    spec.set_cron(std::move(settings.cron));
  } else if (settings.purpose == TargetPurpose::kInventory) {
    ToProto(settings.interval.value_or(store::kInventoryInterval), spec.mutable_interval());
  }
  if (settings.purpose == TargetPurpose::kExport)
    spec.set_min_age_days(settings.min_age_days.value_or(store::kExportMinAgeDays));
  spec.set_region(std::move(settings.region));
  spec.set_endpoint(std::move(settings.endpoint));
  spec.set_description(std::move(settings.description));
  out->set_name(std::move(target.name));
  out->set_has_secret(target.has_secret);
  out->set_paused(target.paused);
  out->set_events_total(target.taken);
  out->set_waiting_deliveries(target.waiting);
  out->set_dead_deliveries(target.dead);
  if (target.last_success) ToProto(*target.last_success, out->mutable_last_success_time());
  out->set_last_error(std::move(target.last_error));
  if (target.last_error_at) ToProto(*target.last_error_at, out->mutable_last_error_time());
  ToProto(target.created, out->mutable_create_time());
  ToProto(target.updated, out->mutable_update_time());
}

void ToProto(store::Delivery&& delivery, v1::DeadDelivery* out) {
  out->set_id(delivery.id);
  out->set_event_id(std::move(delivery.event_id));
  out->set_attempts(delivery.attempts);
  ToProto(delivery.first_failed, out->mutable_first_failure_time());
  ToProto(delivery.last_failed, out->mutable_last_failure_time());
  out->set_last_error(std::move(delivery.last_error));
  out->set_body(std::move(delivery.body));
}

}  // namespace tenure::rpc

// Client's calls on targets. See tenure/client.h.
#include <utility>

#include "calls.h"
#include "convert.h"
#include "tenure/client.h"

namespace tenure::client {
namespace {

using internal::Call;

template <typename Message>
std::optional<Time> OptionalTime(const Message& from, bool set) {
  return set ? std::optional<Time>(internal::FromProto(from)) : std::nullopt;
}

Target TakeTarget(v1::Target& from) {
  Target to;
  to.name = std::move(*from.mutable_name());
  v1::TargetSpec& spec = *from.mutable_spec();
  to.spec.purpose = static_cast<TargetPurpose>(spec.purpose());
  to.spec.url = std::move(*spec.mutable_url());
  to.spec.queues.assign(spec.queues().begin(), spec.queues().end());
  for (const int event : spec.events()) to.spec.events.push_back(static_cast<JobOutcome>(event));
  if (spec.has_interval()) to.spec.interval = internal::FromProto(spec.interval());
  to.spec.min_age_days = spec.min_age_days();
  to.spec.cron = std::move(*spec.mutable_cron());
  to.spec.time_zone = std::move(*spec.mutable_time_zone());
  to.spec.region = std::move(*spec.mutable_region());
  to.spec.endpoint = std::move(*spec.mutable_endpoint());
  to.spec.description = std::move(*spec.mutable_description());
  to.has_secret = from.has_secret();
  to.paused = from.paused();
  to.events_total = from.events_total();
  to.waiting_deliveries = from.waiting_deliveries();
  to.dead_deliveries = from.dead_deliveries();
  to.last_success_time = OptionalTime(from.last_success_time(), from.has_last_success_time());
  to.last_error = std::move(*from.mutable_last_error());
  to.last_error_time = OptionalTime(from.last_error_time(), from.has_last_error_time());
  to.create_time = OptionalTime(from.create_time(), from.has_create_time());
  to.update_time = OptionalTime(from.update_time(), from.has_update_time());
  return to;
}

absl::Status CheckTexts(const TargetSpec& spec) {
  for (const auto& [field, text] : {std::pair<const char*, const std::string&>{"url", spec.url},
                                    {"secret", spec.secret},
                                    {"region", spec.region},
                                    {"endpoint", spec.endpoint},
                                    {"cron", spec.cron},
                                    {"time_zone", spec.time_zone},
                                    {"description", spec.description}}) {
    if (absl::Status status = internal::CheckText(field, text); !status.ok()) return status;
  }
  for (const std::string& queue : spec.queues) {
    if (absl::Status status = internal::CheckText("queues", queue); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// All but the purpose.
void Put(const TargetSpec& spec, v1::TargetSpec& to) {
  to.set_url(spec.url);
  for (const std::string& queue : spec.queues) to.add_queues(queue);
  for (const JobOutcome event : spec.events) to.add_events(static_cast<v1::JobOutcome>(event));
  if (spec.interval) internal::ToProto(*spec.interval, to.mutable_interval());
  to.set_min_age_days(spec.min_age_days);
  to.set_secret(spec.secret);
  to.set_region(spec.region);
  to.set_endpoint(spec.endpoint);
  to.set_description(spec.description);
  to.set_cron(spec.cron);
  to.set_time_zone(spec.time_zone);
}

// The calls that name a target and answer with it.
template <typename Request, typename Response>
absl::StatusOr<Target> NamedTarget(internal::Connection& connection, Request request, std::string_view name,
                                   const CallOptions& options) {
  if (absl::Status status = internal::CheckText("name", name); !status.ok()) return status;
  request.set_name(std::string(name));
  Response response;
  absl::Status status = Call(connection, request, &response, internal::BoundsOf(connection, options));
  if (!status.ok()) return status;
  return TakeTarget(*response.mutable_target());
}

}  // namespace

absl::StatusOr<Target> Client::CreateTarget(std::string_view name, const TargetSpec& spec, bool paused,
                                            const CallOptions& options) {
  if (absl::Status status = CheckTexts(spec); !status.ok()) return status;
  v1::CreateTargetRequest request;
  request.mutable_spec()->set_purpose(static_cast<v1::TargetPurpose>(spec.purpose));
  Put(spec, *request.mutable_spec());
  request.set_paused(paused);
  return NamedTarget<v1::CreateTargetRequest, v1::CreateTargetResponse>(*connection_, std::move(request), name,
                                                                        options);
}

absl::StatusOr<Target> Client::UpdateTarget(std::string_view name, const TargetChange& change,
                                            const std::vector<std::string>& reset, const CallOptions& options) {
  v1::UpdateTargetRequest request;
  auto* mask = request.mutable_update_mask();
  TargetSpec spec;
  const auto take = [mask](const auto& from, auto& to, const char* field) {
    if (!from) return;
    to = *from;
    mask->add_paths(field);
  };
  take(change.url, spec.url, "url");
  take(change.queues, spec.queues, "queues");
  take(change.events, spec.events, "events");
  take(change.interval, spec.interval, "interval");
  take(change.min_age_days, spec.min_age_days, "min_age_days");
  take(change.secret, spec.secret, "secret");
  take(change.region, spec.region, "region");
  take(change.endpoint, spec.endpoint, "endpoint");
  take(change.description, spec.description, "description");
  take(change.cron, spec.cron, "cron");
  take(change.time_zone, spec.time_zone, "time_zone");
  for (const std::string& field : reset) {
    if (absl::Status status = internal::CheckText("reset", field); !status.ok()) return status;
    mask->add_paths(field);
  }
  if (absl::Status status = CheckTexts(spec); !status.ok()) return status;
  Put(spec, *request.mutable_spec());
  return NamedTarget<v1::UpdateTargetRequest, v1::UpdateTargetResponse>(*connection_, std::move(request), name,
                                                                        options);
}

absl::StatusOr<Target> Client::GetTarget(std::string_view name, const CallOptions& options) {
  return NamedTarget<v1::GetTargetRequest, v1::GetTargetResponse>(*connection_, {}, name, options);
}

absl::StatusOr<Target> Client::PauseTarget(std::string_view name, const CallOptions& options) {
  return NamedTarget<v1::PauseTargetRequest, v1::PauseTargetResponse>(*connection_, {}, name, options);
}

absl::StatusOr<Target> Client::ResumeTarget(std::string_view name, const CallOptions& options) {
  return NamedTarget<v1::ResumeTargetRequest, v1::ResumeTargetResponse>(*connection_, {}, name, options);
}

absl::StatusOr<TargetPage> Client::ListTargets(std::string_view name_prefix, int page_size, std::string_view page_token,
                                               const CallOptions& options) {
  if (absl::Status status = internal::CheckText("name_prefix", name_prefix); !status.ok()) return status;
  if (absl::Status status = internal::CheckText("page_token", page_token); !status.ok()) return status;
  v1::ListTargetsRequest request;
  request.set_name_prefix(std::string(name_prefix));
  request.set_page_size(page_size);
  request.set_page_token(std::string(page_token));
  v1::ListTargetsResponse response;
  absl::Status status = Call(*connection_, request, &response, internal::BoundsOf(*connection_, options));
  if (!status.ok()) return status;
  TargetPage page;
  for (auto& target : *response.mutable_targets()) page.targets.push_back(TakeTarget(target));
  page.next_page_token = std::move(*response.mutable_next_page_token());
  return page;
}

absl::StatusOr<DeadDeliveryPage> Client::ListDeadDeliveries(std::string_view name, int page_size,
                                                            std::string_view page_token, const CallOptions& options) {
  if (absl::Status status = internal::CheckText("name", name); !status.ok()) return status;
  if (absl::Status status = internal::CheckText("page_token", page_token); !status.ok()) return status;
  v1::ListDeadDeliveriesRequest request;
  request.set_name(std::string(name));
  request.set_page_size(page_size);
  request.set_page_token(std::string(page_token));
  v1::ListDeadDeliveriesResponse response;
  absl::Status status = Call(*connection_, request, &response, internal::BoundsOf(*connection_, options));
  if (!status.ok()) return status;
  DeadDeliveryPage page;
  for (auto& from : *response.mutable_deliveries()) {
    DeadDelivery& to = page.deliveries.emplace_back();
    to.id = from.id();
    to.event_id = std::move(*from.mutable_event_id());
    to.attempts = from.attempts();
    to.first_failure_time = OptionalTime(from.first_failure_time(), from.has_first_failure_time());
    to.last_failure_time = OptionalTime(from.last_failure_time(), from.has_last_failure_time());
    to.last_error = std::move(*from.mutable_last_error());
    to.body = std::move(*from.mutable_body());
  }
  page.next_page_token = std::move(*response.mutable_next_page_token());
  return page;
}

absl::StatusOr<int64_t> Client::RedriveDeliveries(std::string_view name, const std::vector<int64_t>& ids,
                                                  const CallOptions& options) {
  if (absl::Status status = internal::CheckText("name", name); !status.ok()) return status;
  v1::RedriveDeliveriesRequest request;
  request.set_name(std::string(name));
  request.mutable_delivery_ids()->Add(ids.begin(), ids.end());
  int64_t redriven = 0;
  while (true) {
    v1::RedriveDeliveriesResponse response;
    absl::Status status = Call(*connection_, request, &response, internal::BoundsOf(*connection_, options));
    if (!status.ok()) return status;
    redriven += response.redriven();
    if (!response.more() || !ids.empty()) return redriven;
  }
}

absl::Status Client::DeleteTarget(std::string_view name, const CallOptions& options) {
  if (absl::Status status = internal::CheckText("name", name); !status.ok()) return status;
  v1::DeleteTargetRequest request;
  request.set_name(std::string(name));
  v1::DeleteTargetResponse response;
  return Call(*connection_, request, &response, internal::BoundsOf(*connection_, options));
}

}  // namespace tenure::client

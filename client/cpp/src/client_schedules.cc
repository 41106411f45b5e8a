// Client's calls on schedules. See tenure/client.h.
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

Schedule TakeSchedule(v1::Schedule& from) {
  Schedule to;
  to.name = std::move(*from.mutable_name());
  v1::ScheduleSpec& spec = *from.mutable_spec();
  if (spec.has_cron()) to.spec.cron = std::move(*spec.mutable_cron());
  if (spec.has_interval()) to.spec.interval = internal::FromProto(spec.interval());
  to.spec.time_zone = std::move(*spec.mutable_time_zone());
  to.spec.job = internal::TakeJobSpec(*spec.mutable_job());
  to.spec.overlap_policy = static_cast<OverlapPolicy>(spec.overlap_policy());
  if (spec.has_catch_up()) to.spec.catch_up = spec.catch_up();
  to.spec.description = std::move(*spec.mutable_description());
  to.paused = from.paused();
  to.next_time = OptionalTime(from.next_time(), from.has_next_time());
  for (const auto& time : from.upcoming_times()) to.upcoming_times.push_back(internal::FromProto(time));
  to.last_time = OptionalTime(from.last_time(), from.has_last_time());
  to.last_job_id = std::move(*from.mutable_last_job_id());
  to.fired_total = from.fired_total();
  to.skipped_missed_total = from.skipped_missed_total();
  to.skipped_overlap_total = from.skipped_overlap_total();
  to.create_time = OptionalTime(from.create_time(), from.has_create_time());
  to.update_time = OptionalTime(from.update_time(), from.has_update_time());
  return to;
}

// The calls that name a schedule and answer with it.
template <typename Request, typename Response>
absl::StatusOr<Schedule> NamedSchedule(internal::Connection& connection, Request request, std::string_view name,
                                       const CallOptions& options) {
  if (absl::Status status = internal::CheckText("name", name); !status.ok()) return status;
  request.set_name(std::string(name));
  Response response;
  absl::Status status = Call(connection, request, &response, internal::BoundsOf(connection, options));
  if (!status.ok()) return status;
  return TakeSchedule(*response.mutable_schedule());
}

}  // namespace

absl::StatusOr<Schedule> Client::CreateSchedule(std::string_view name, const ScheduleSpec& spec, bool paused,
                                                const CallOptions& options) {
  v1::CreateScheduleRequest request;
  v1::ScheduleSpec& to = *request.mutable_spec();
  for (const auto& [field, text] : {std::pair<const char*, const std::string&>{"cron", spec.cron},
                                    {"time_zone", spec.time_zone},
                                    {"description", spec.description}}) {
    if (absl::Status status = internal::CheckText(field, text); !status.ok()) return status;
  }
  if (!spec.cron.empty() && spec.interval) {
    return absl::InvalidArgumentError("cron, interval: a schedule has one of them");
  }
  if (!spec.cron.empty()) to.set_cron(spec.cron);
  if (spec.interval) internal::ToProto(*spec.interval, to.mutable_interval());
  to.set_time_zone(spec.time_zone);
  if (absl::Status status = internal::ToProto(spec.job, to.mutable_job()); !status.ok()) return status;
  to.set_overlap_policy(static_cast<v1::OverlapPolicy>(spec.overlap_policy));
  if (spec.catch_up) to.set_catch_up(*spec.catch_up);
  to.set_description(spec.description);
  request.set_paused(paused);
  return NamedSchedule<v1::CreateScheduleRequest, v1::CreateScheduleResponse>(*connection_, std::move(request), name,
                                                                              options);
}

absl::StatusOr<Schedule> Client::UpdateSchedule(std::string_view name, const ScheduleChange& change,
                                                const std::vector<std::string>& reset, const CallOptions& options) {
  v1::UpdateScheduleRequest request;
  v1::ScheduleSpec& to = *request.mutable_spec();
  auto* mask = request.mutable_update_mask();
  for (const auto& [field, text] : {std::pair<const char*, const std::optional<std::string>&>{"cron", change.cron},
                                    {"time_zone", change.time_zone},
                                    {"description", change.description}}) {
    if (absl::Status status = internal::CheckText(field, text.value_or("")); !status.ok()) return status;
  }
  if (change.cron && change.interval) {
    return absl::InvalidArgumentError("cron, interval: a schedule has one of them");
  }
  if (change.cron) {
    to.set_cron(*change.cron);
    mask->add_paths("cron");
  }
  if (change.interval) {
    internal::ToProto(*change.interval, to.mutable_interval());
    mask->add_paths("interval");
  }
  if (change.time_zone) {
    to.set_time_zone(*change.time_zone);
    mask->add_paths("time_zone");
  }
  if (change.job) {
    if (absl::Status status = internal::ToProto(*change.job, to.mutable_job()); !status.ok()) return status;
    mask->add_paths("job");
  }
  if (change.overlap_policy) {
    to.set_overlap_policy(static_cast<v1::OverlapPolicy>(*change.overlap_policy));
    mask->add_paths("overlap_policy");
  }
  if (change.catch_up) {
    to.set_catch_up(*change.catch_up);
    mask->add_paths("catch_up");
  }
  if (change.description) {
    to.set_description(*change.description);
    mask->add_paths("description");
  }
  for (const std::string& field : reset) {
    if (absl::Status status = internal::CheckText("reset", field); !status.ok()) return status;
    mask->add_paths(field);
  }
  return NamedSchedule<v1::UpdateScheduleRequest, v1::UpdateScheduleResponse>(*connection_, std::move(request), name,
                                                                              options);
}

absl::StatusOr<Schedule> Client::GetSchedule(std::string_view name, const CallOptions& options) {
  return NamedSchedule<v1::GetScheduleRequest, v1::GetScheduleResponse>(*connection_, {}, name, options);
}

absl::StatusOr<Schedule> Client::PauseSchedule(std::string_view name, const CallOptions& options) {
  return NamedSchedule<v1::PauseScheduleRequest, v1::PauseScheduleResponse>(*connection_, {}, name, options);
}

absl::StatusOr<Schedule> Client::ResumeSchedule(std::string_view name, const CallOptions& options) {
  return NamedSchedule<v1::ResumeScheduleRequest, v1::ResumeScheduleResponse>(*connection_, {}, name, options);
}

absl::StatusOr<SchedulePage> Client::ListSchedules(std::string_view name_prefix, int page_size,
                                                   std::string_view page_token, const CallOptions& options) {
  if (absl::Status status = internal::CheckText("name_prefix", name_prefix); !status.ok()) return status;
  if (absl::Status status = internal::CheckText("page_token", page_token); !status.ok()) return status;
  v1::ListSchedulesRequest request;
  request.set_name_prefix(std::string(name_prefix));
  request.set_page_size(page_size);
  request.set_page_token(std::string(page_token));
  v1::ListSchedulesResponse response;
  absl::Status status = Call(*connection_, request, &response, internal::BoundsOf(*connection_, options));
  if (!status.ok()) return status;
  SchedulePage page;
  for (auto& schedule : *response.mutable_schedules()) page.schedules.push_back(TakeSchedule(schedule));
  page.next_page_token = std::move(*response.mutable_next_page_token());
  return page;
}

absl::Status Client::DeleteSchedule(std::string_view name, const CallOptions& options) {
  if (absl::Status status = internal::CheckText("name", name); !status.ok()) return status;
  v1::DeleteScheduleRequest request;
  request.set_name(std::string(name));
  v1::DeleteScheduleResponse response;
  return Call(*connection_, request, &response, internal::BoundsOf(*connection_, options));
}

absl::StatusOr<std::string> Client::TriggerSchedule(std::string_view name, std::string_view request_id,
                                                    const CallOptions& options) {
  if (absl::Status status = internal::CheckText("name", name); !status.ok()) return status;
  if (absl::Status status = internal::CheckText("request_id", request_id); !status.ok()) return status;
  v1::TriggerScheduleRequest request;
  request.set_name(std::string(name));
  request.set_request_id(request_id.empty() ? NewRequestId() : std::string(request_id));
  v1::TriggerScheduleResponse response;
  absl::Status status = Call(*connection_, request, &response, internal::BoundsOf(*connection_, options));
  if (!status.ok()) return status;
  return std::move(*response.mutable_job_id());
}

}  // namespace tenure::client

#include "server/rpc/schedule_service.h"

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/rpc/conversion.h"
#include "server/rpc/page_token.h"
#include "server/rpc/schedule_conversion.h"

namespace tenure::rpc {
namespace {

constexpr int kUpcoming = 5;
constexpr size_t kMaxRequestId = 255;

template <typename Call>
std::function<void(absl::StatusOr<store::Schedule>)> AnswerSchedule(std::shared_ptr<Call> call) {
  return [call = std::move(call)](absl::StatusOr<store::Schedule> schedule) {
    if (!schedule.ok()) return call->Finish(schedule.status());
    ToProto(*std::move(schedule), kUpcoming, call->response().mutable_schedule());
    call->Finish();
  };
}

// A schedule's name obeys the rule of queues' names.
template <typename Call>
bool CheckName(Call& call) {
  absl::Status valid = CheckQueueName(Field("name"), call.request().name());
  if (!valid.ok()) call.Finish(valid);
  return valid.ok();
}

}  // namespace

void ScheduleService::Register(MethodTable& table) {
  constexpr char kService[] = "tenure.v1.ScheduleService";
  table.Add<v1::CreateScheduleRequest, v1::CreateScheduleResponse>(
      kService, "CreateSchedule", [this](auto call) { CreateSchedule(std::move(call)); });
  table.Add<v1::UpdateScheduleRequest, v1::UpdateScheduleResponse>(
      kService, "UpdateSchedule", [this](auto call) { UpdateSchedule(std::move(call)); });
  table.Add<v1::GetScheduleRequest, v1::GetScheduleResponse>(kService, "GetSchedule",
                                                             [this](auto call) { GetSchedule(std::move(call)); });
  table.Add<v1::ListSchedulesRequest, v1::ListSchedulesResponse>(kService, "ListSchedules",
                                                                 [this](auto call) { ListSchedules(std::move(call)); });
  table.Add<v1::DeleteScheduleRequest, v1::DeleteScheduleResponse>(
      kService, "DeleteSchedule", [this](auto call) { DeleteSchedule(std::move(call)); });
  table.Add<v1::PauseScheduleRequest, v1::PauseScheduleResponse>(kService, "PauseSchedule",
                                                                 [this](auto call) { PauseSchedule(std::move(call)); });
  table.Add<v1::ResumeScheduleRequest, v1::ResumeScheduleResponse>(
      kService, "ResumeSchedule", [this](auto call) { ResumeSchedule(std::move(call)); });
  table.Add<v1::TriggerScheduleRequest, v1::TriggerScheduleResponse>(
      kService, "TriggerSchedule", [this](auto call) { TriggerSchedule(std::move(call)); });
}

void ScheduleService::CreateSchedule(CallPtr<v1::CreateScheduleRequest, v1::CreateScheduleResponse> call) {
  if (!CheckName(*call)) return;
  v1::CreateScheduleRequest& request = call->request();
  absl::StatusOr<store::ScheduleSettings> settings = ScheduleFrom(*request.mutable_spec(), limits_);
  if (!settings.ok()) return call->Finish(settings.status());
  engine_.CreateSchedule(request.name(), *std::move(settings), request.paused(), AnswerSchedule(call));
}

void ScheduleService::UpdateSchedule(CallPtr<v1::UpdateScheduleRequest, v1::UpdateScheduleResponse> call) {
  if (!CheckName(*call)) return;
  v1::UpdateScheduleRequest& request = call->request();
  std::set<std::string> fields;
  absl::StatusOr<store::ScheduleSettings> settings = ScheduleUpdateFrom(request, limits_, fields);
  if (!settings.ok()) return call->Finish(settings.status());
  engine_.UpdateSchedule(request.name(), *std::move(settings), std::move(fields), AnswerSchedule(call));
}

void ScheduleService::GetSchedule(CallPtr<v1::GetScheduleRequest, v1::GetScheduleResponse> call) {
  if (!CheckName(*call)) return;
  engine_.GetSchedule(call->request().name(), AnswerSchedule(call));
}

void ScheduleService::ListSchedules(CallPtr<v1::ListSchedulesRequest, v1::ListSchedulesResponse> call) {
  const v1::ListSchedulesRequest& request = call->request();
  absl::StatusOr<int32_t> page_size = PageSizeFrom(request.page_size(), 100);
  if (!page_size.ok()) return call->Finish(page_size.status());
  if (!request.name_prefix().empty()) {
    absl::Status valid = CheckQueueName(Field("name_prefix"), request.name_prefix());
    if (!valid.ok()) return call->Finish(valid);
  }
  absl::StatusOr<std::string> after = DecodePageToken(request.page_token(), request);
  if (!after.ok()) return call->Finish(after.status());
  // One more than the page tells whether there is a next one.
  engine_.ListSchedules(
      *std::move(after), request.name_prefix(), *page_size + 1,
      [call, limit = static_cast<size_t>(*page_size)](absl::StatusOr<std::vector<store::Schedule>> schedules) {
        if (!schedules.ok()) return call->Finish(schedules.status());
        v1::ListSchedulesResponse& response = call->response();
        if (schedules->size() > limit) {
          schedules->resize(limit);
          response.set_next_page_token(EncodePageToken(schedules->back().name, call->request()));
        }
        for (store::Schedule& schedule : *schedules) ToProto(std::move(schedule), 0, response.add_schedules());
        call->Finish();
      });
}

void ScheduleService::DeleteSchedule(CallPtr<v1::DeleteScheduleRequest, v1::DeleteScheduleResponse> call) {
  if (!CheckName(*call)) return;
  engine_.DeleteSchedule(call->request().name(),
                         [call](const absl::StatusOr<bool>& gone) { call->Finish(gone.status()); });
}

void ScheduleService::PauseSchedule(CallPtr<v1::PauseScheduleRequest, v1::PauseScheduleResponse> call) {
  if (!CheckName(*call)) return;
  engine_.SetSchedulePaused(call->request().name(), true, AnswerSchedule(call));
}

void ScheduleService::ResumeSchedule(CallPtr<v1::ResumeScheduleRequest, v1::ResumeScheduleResponse> call) {
  if (!CheckName(*call)) return;
  engine_.SetSchedulePaused(call->request().name(), false, AnswerSchedule(call));
}

void ScheduleService::TriggerSchedule(CallPtr<v1::TriggerScheduleRequest, v1::TriggerScheduleResponse> call) {
  if (!CheckName(*call)) return;
  const v1::TriggerScheduleRequest& request = call->request();
  absl::Status valid = CheckText(Field("request_id"), request.request_id(), 0, kMaxRequestId);
  if (!valid.ok()) return call->Finish(valid);
  engine_.TriggerSchedule(request.name(), request.request_id(), [call](const absl::StatusOr<store::TriggeredJob>& job) {
    if (!job.ok()) return call->Finish(job.status());
    call->response().set_job_id(job->id.ToString());
    call->response().set_replayed(job->repeated);
    call->Finish();
  });
}

}  // namespace tenure::rpc

#include "server/rpc/queue_service.h"

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/rpc/conversion.h"
#include "server/rpc/page_token.h"

namespace tenure::rpc {
namespace {

// Every call but ListQueues answers with the queue as it is afterwards.
template <typename Call>
engine::Callback<engine::QueueInfo> AnswerQueue(std::shared_ptr<Call> call) {
  return [call = std::move(call)](absl::StatusOr<engine::QueueInfo> info) {
    if (!info.ok()) return call->Finish(info.status());
    ToProto(*info, call->response().mutable_queue());
    call->Finish();
  };
}

template <typename Call>
bool CheckName(Call& call) {
  absl::Status valid = CheckQueueName(Field("name"), call.request().name());
  if (!valid.ok()) call.Finish(valid);
  return valid.ok();
}

// Known before anything is made.
absl::Status CheckRule(const std::string& name, const store::QueueSettings& settings, bool whole) {
  if (whole && settings.dead_letter_rate && settings.dead_letter_queue.empty()) {
    return Invalid(Field("settings") / "dead_letter_jobs_per_second", "needs dead_letter_queue");
  }
  if (settings.dead_letter_queue != name) return absl::OkStatus();
  return Invalid(Field("settings") / "dead_letter_queue", "must be another queue than this one");
}

}  // namespace

void QueueService::Register(MethodTable& table) {
  constexpr char kService[] = "tenure.v1.QueueService";
  table.Add<v1::CreateQueueRequest, v1::CreateQueueResponse>(kService, "CreateQueue",
                                                             [this](auto call) { CreateQueue(std::move(call)); });
  table.Add<v1::UpdateQueueRequest, v1::UpdateQueueResponse>(kService, "UpdateQueue",
                                                             [this](auto call) { UpdateQueue(std::move(call)); });
  table.Add<v1::GetQueueRequest, v1::GetQueueResponse>(kService, "GetQueue",
                                                       [this](auto call) { GetQueue(std::move(call)); });
  table.Add<v1::ListQueuesRequest, v1::ListQueuesResponse>(kService, "ListQueues",
                                                           [this](auto call) { ListQueues(std::move(call)); });
  table.Add<v1::PauseQueueRequest, v1::PauseQueueResponse>(kService, "PauseQueue",
                                                           [this](auto call) { PauseQueue(std::move(call)); });
  table.Add<v1::ResumeQueueRequest, v1::ResumeQueueResponse>(kService, "ResumeQueue",
                                                             [this](auto call) { ResumeQueue(std::move(call)); });
}

void QueueService::CreateQueue(CallPtr<v1::CreateQueueRequest, v1::CreateQueueResponse> call) {
  if (!CheckName(*call)) return;
  const v1::CreateQueueRequest& request = call->request();
  absl::StatusOr<store::QueueSettings> settings = SettingsFrom(request.settings());
  if (!settings.ok()) return call->Finish(settings.status());
  absl::Status rule = CheckRule(request.name(), *settings, /*whole=*/true);
  if (!rule.ok()) return call->Finish(rule);
  engine_.CreateQueue(request.name(), *std::move(settings), request.paused(), AnswerQueue(call));
}

void QueueService::UpdateQueue(CallPtr<v1::UpdateQueueRequest, v1::UpdateQueueResponse> call) {
  if (!CheckName(*call)) return;
  const v1::UpdateQueueRequest& request = call->request();
  std::set<std::string> set;
  absl::StatusOr<store::QueueSettings> settings = SettingsFrom(request.settings(), &set);
  if (!settings.ok()) return call->Finish(settings.status());
  absl::StatusOr<std::set<std::string>> fields = UpdatedFields(request, std::move(set));
  if (!fields.ok()) return call->Finish(fields.status());
  absl::Status rule = CheckRule(request.name(), *settings, /*whole=*/false);
  if (!rule.ok()) return call->Finish(rule);
  engine_.UpdateQueue(request.name(), *std::move(settings), *std::move(fields), AnswerQueue(call));
}

void QueueService::GetQueue(CallPtr<v1::GetQueueRequest, v1::GetQueueResponse> call) {
  if (!CheckName(*call)) return;
  engine_.GetQueue(call->request().name(), AnswerQueue(call));
}

void QueueService::PauseQueue(CallPtr<v1::PauseQueueRequest, v1::PauseQueueResponse> call) {
  if (!CheckName(*call)) return;
  engine_.SetPaused(call->request().name(), true, AnswerQueue(call));
}

void QueueService::ResumeQueue(CallPtr<v1::ResumeQueueRequest, v1::ResumeQueueResponse> call) {
  if (!CheckName(*call)) return;
  engine_.SetPaused(call->request().name(), false, AnswerQueue(call));
}

void QueueService::ListQueues(CallPtr<v1::ListQueuesRequest, v1::ListQueuesResponse> call) {
  const v1::ListQueuesRequest& request = call->request();
  absl::StatusOr<int32_t> page_size = PageSizeFrom(request.page_size(), 100);
  if (!page_size.ok()) return call->Finish(page_size.status());
  if (!request.name_prefix().empty()) {
    // A prefix obeys the rule of the names that it begins.
    absl::Status valid = CheckQueueName(Field("name_prefix"), request.name_prefix());
    if (!valid.ok()) return call->Finish(valid);
  }
  absl::StatusOr<std::string> after = DecodePageToken(request.page_token(), request);
  if (!after.ok()) return call->Finish(after.status());
  // One more than the page tells whether there is a next one.
  engine_.ListQueues(
      *std::move(after), request.name_prefix(), *page_size + 1,
      [call, limit = static_cast<size_t>(*page_size)](absl::StatusOr<std::vector<engine::QueueInfo>> queues) {
        if (!queues.ok()) return call->Finish(queues.status());
        v1::ListQueuesResponse& response = call->response();
        if (queues->size() > limit) {
          queues->resize(limit);
          response.set_next_page_token(EncodePageToken(queues->back().queue.name, call->request()));
        }
        for (const engine::QueueInfo& info : *queues) ToProto(info, response.add_queues());
        call->Finish();
      });
}

}  // namespace tenure::rpc

#include "server/rpc/target_service.h"

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/rpc/conversion.h"
#include "server/rpc/page_token.h"
#include "server/rpc/target_conversion.h"

namespace tenure::rpc {
namespace {

constexpr int kMaxDeliveryIds = 1000;

template <typename Call>
std::function<void(absl::StatusOr<store::Target>)> AnswerTarget(std::shared_ptr<Call> call) {
  return [call = std::move(call)](absl::StatusOr<store::Target> target) {
    if (!target.ok()) return call->Finish(target.status());
    ToProto(*std::move(target), call->response().mutable_target());
    call->Finish();
  };
}

// A target's name obeys the rule of queues' names.
template <typename Call>
bool CheckName(Call& call) {
  absl::Status valid = CheckQueueName(Field("name"), call.request().name());
  if (!valid.ok()) call.Finish(valid);
  return valid.ok();
}

}  // namespace

void TargetService::Register(MethodTable& table) {
  constexpr char kService[] = "tenure.v1.TargetService";
  table.Add<v1::CreateTargetRequest, v1::CreateTargetResponse>(kService, "CreateTarget",
                                                               [this](auto call) { CreateTarget(std::move(call)); });
  table.Add<v1::UpdateTargetRequest, v1::UpdateTargetResponse>(kService, "UpdateTarget",
                                                               [this](auto call) { UpdateTarget(std::move(call)); });
  table.Add<v1::GetTargetRequest, v1::GetTargetResponse>(kService, "GetTarget",
                                                         [this](auto call) { GetTarget(std::move(call)); });
  table.Add<v1::ListTargetsRequest, v1::ListTargetsResponse>(kService, "ListTargets",
                                                             [this](auto call) { ListTargets(std::move(call)); });
  table.Add<v1::DeleteTargetRequest, v1::DeleteTargetResponse>(kService, "DeleteTarget",
                                                               [this](auto call) { DeleteTarget(std::move(call)); });
  table.Add<v1::PauseTargetRequest, v1::PauseTargetResponse>(kService, "PauseTarget",
                                                             [this](auto call) { PauseTarget(std::move(call)); });
  table.Add<v1::ResumeTargetRequest, v1::ResumeTargetResponse>(kService, "ResumeTarget",
                                                               [this](auto call) { ResumeTarget(std::move(call)); });
  table.Add<v1::ListDeadDeliveriesRequest, v1::ListDeadDeliveriesResponse>(
      kService, "ListDeadDeliveries", [this](auto call) { ListDeadDeliveries(std::move(call)); });
  table.Add<v1::RedriveDeliveriesRequest, v1::RedriveDeliveriesResponse>(
      kService, "RedriveDeliveries", [this](auto call) { RedriveDeliveries(std::move(call)); });
}

void TargetService::CreateTarget(CallPtr<v1::CreateTargetRequest, v1::CreateTargetResponse> call) {
  if (!CheckName(*call)) return;
  v1::CreateTargetRequest& request = call->request();
  absl::StatusOr<store::TargetSettings> settings = TargetFrom(*request.mutable_spec());
  if (!settings.ok()) return call->Finish(settings.status());
  if (absl::Status served = CheckSettings(*settings); !served.ok()) return call->Finish(served);
  engine_.CreateTarget(request.name(), *std::move(settings), request.paused(), AnswerTarget(call));
}

void TargetService::UpdateTarget(CallPtr<v1::UpdateTargetRequest, v1::UpdateTargetResponse> call) {
  if (!CheckName(*call)) return;
  v1::UpdateTargetRequest& request = call->request();
  std::set<std::string> fields;
  absl::StatusOr<store::TargetSettings> settings = TargetUpdateFrom(request, fields);
  if (!settings.ok()) return call->Finish(settings.status());
  engine_.UpdateTarget(
      request.name(), *std::move(settings), std::move(fields),
      [this](const store::TargetSettings& changed) {
        TENURE_RETURN_IF_ERROR(CheckTarget(changed));
        return CheckSettings(changed);
      },
      AnswerTarget(call));
}

absl::Status TargetService::CheckSettings(const store::TargetSettings& settings) const {
  return check_ ? check_(settings) : absl::OkStatus();
}

void TargetService::GetTarget(CallPtr<v1::GetTargetRequest, v1::GetTargetResponse> call) {
  if (!CheckName(*call)) return;
  engine_.GetTarget(call->request().name(), AnswerTarget(call));
}

void TargetService::ListTargets(CallPtr<v1::ListTargetsRequest, v1::ListTargetsResponse> call) {
  const v1::ListTargetsRequest& request = call->request();
  absl::StatusOr<int32_t> page_size = PageSizeFrom(request.page_size(), 100);
  if (!page_size.ok()) return call->Finish(page_size.status());
  if (!request.name_prefix().empty()) {
    absl::Status valid = CheckQueueName(Field("name_prefix"), request.name_prefix());
    if (!valid.ok()) return call->Finish(valid);
  }
  absl::StatusOr<std::string> after = DecodePageToken(request.page_token(), request);
  if (!after.ok()) return call->Finish(after.status());
  // One more than the page tells whether there is a next one.
  engine_.ListTargets(
      *std::move(after), request.name_prefix(), *page_size + 1,
      [call, limit = static_cast<size_t>(*page_size)](absl::StatusOr<std::vector<store::Target>> targets) {
        if (!targets.ok()) return call->Finish(targets.status());
        v1::ListTargetsResponse& response = call->response();
        if (targets->size() > limit) {
          targets->resize(limit);
          response.set_next_page_token(EncodePageToken(targets->back().name, call->request()));
        }
        for (store::Target& target : *targets) ToProto(std::move(target), response.add_targets());
        call->Finish();
      });
}

void TargetService::DeleteTarget(CallPtr<v1::DeleteTargetRequest, v1::DeleteTargetResponse> call) {
  if (!CheckName(*call)) return;
  engine_.DeleteTarget(call->request().name(),
                       [call](const absl::StatusOr<bool>& gone) { call->Finish(gone.status()); });
}

void TargetService::PauseTarget(CallPtr<v1::PauseTargetRequest, v1::PauseTargetResponse> call) {
  if (!CheckName(*call)) return;
  engine_.SetTargetPaused(call->request().name(), true, AnswerTarget(call));
}

void TargetService::ResumeTarget(CallPtr<v1::ResumeTargetRequest, v1::ResumeTargetResponse> call) {
  if (!CheckName(*call)) return;
  engine_.SetTargetPaused(call->request().name(), false, AnswerTarget(call));
}

void TargetService::ListDeadDeliveries(CallPtr<v1::ListDeadDeliveriesRequest, v1::ListDeadDeliveriesResponse> call) {
  if (!CheckName(*call)) return;
  const v1::ListDeadDeliveriesRequest& request = call->request();
  absl::StatusOr<int32_t> page_size = PageSizeFrom(request.page_size(), 100);
  if (!page_size.ok()) return call->Finish(page_size.status());
  absl::StatusOr<std::string> position = DecodePageToken(request.page_token(), request);
  if (!position.ok()) return call->Finish(position.status());
  int64_t after = 0;
  if (!position->empty() && !absl::SimpleAtoi(*position, &after)) {
    return call->Finish(Invalid(Field("page_token"), "is none of this call"));
  }
  engine_.ListDeadDeliveries(
      request.name(), after, *page_size + 1,
      [call, limit = static_cast<size_t>(*page_size)](absl::StatusOr<std::vector<store::Delivery>> deliveries) {
        if (!deliveries.ok()) return call->Finish(deliveries.status());
        v1::ListDeadDeliveriesResponse& response = call->response();
        if (deliveries->size() > limit) {
          deliveries->resize(limit);
          response.set_next_page_token(EncodePageToken(absl::StrCat(deliveries->back().id), call->request()));
        }
        for (store::Delivery& delivery : *deliveries) ToProto(std::move(delivery), response.add_deliveries());
        call->Finish();
      });
}

void TargetService::RedriveDeliveries(CallPtr<v1::RedriveDeliveriesRequest, v1::RedriveDeliveriesResponse> call) {
  if (!CheckName(*call)) return;
  const v1::RedriveDeliveriesRequest& request = call->request();
  absl::Status valid = CheckCount(Field("delivery_ids"), request.delivery_ids_size(), 0, kMaxDeliveryIds, "ids");
  if (!valid.ok()) return call->Finish(valid);
  engine_.RedriveDeliveries(request.name(), {request.delivery_ids().begin(), request.delivery_ids().end()},
                            [call](const absl::StatusOr<store::Redriven>& redriven) {
                              if (!redriven.ok()) return call->Finish(redriven.status());
                              call->response().set_redriven(redriven->count);
                              call->response().set_more(redriven->more);
                              call->Finish();
                            });
}

}  // namespace tenure::rpc

// tenure.v1.TargetService: validate, convert, one engine call, convert back. Layer: rpc. Thread-safe.
#pragma once

#include <functional>
#include <utility>

#include "server/engine/target_engine.h"
#include "server/rpc/method_table.h"
#include "tenure/v1/target_service.pb.h"

namespace tenure::rpc {

class TargetService {
 public:
  // Whether this daemon could serve such a target; otherwise INVALID_ARGUMENT naming the field.
  using Check = std::function<absl::Status(const store::TargetSettings&)>;

  // The engine outlives the service. `check` empty: it could serve any.
  explicit TargetService(engine::TargetEngine& engine, Check check = nullptr)
      : engine_(engine), check_(std::move(check)) {}
  // Adds the methods; the service outlives the table's use.
  void Register(MethodTable& table);

  void CreateTarget(CallPtr<v1::CreateTargetRequest, v1::CreateTargetResponse> call);
  void UpdateTarget(CallPtr<v1::UpdateTargetRequest, v1::UpdateTargetResponse> call);
  void GetTarget(CallPtr<v1::GetTargetRequest, v1::GetTargetResponse> call);
  void ListTargets(CallPtr<v1::ListTargetsRequest, v1::ListTargetsResponse> call);
  void DeleteTarget(CallPtr<v1::DeleteTargetRequest, v1::DeleteTargetResponse> call);
  void PauseTarget(CallPtr<v1::PauseTargetRequest, v1::PauseTargetResponse> call);
  void ResumeTarget(CallPtr<v1::ResumeTargetRequest, v1::ResumeTargetResponse> call);
  void ListDeadDeliveries(CallPtr<v1::ListDeadDeliveriesRequest, v1::ListDeadDeliveriesResponse> call);
  void RedriveDeliveries(CallPtr<v1::RedriveDeliveriesRequest, v1::RedriveDeliveriesResponse> call);

 private:
  absl::Status CheckSettings(const store::TargetSettings& settings) const;

  engine::TargetEngine& engine_;
  const Check check_;
};

}  // namespace tenure::rpc

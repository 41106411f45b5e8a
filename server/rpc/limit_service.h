// tenure.v1.LimitService: validate, convert, one engine call, convert back. Layer: rpc. Thread-safe.
#pragma once

#include "server/engine/admission_engine.h"
#include "server/rpc/method_table.h"
#include "tenure/v1/limit_service.pb.h"

namespace tenure::rpc {

class LimitService {
 public:
  // The engine outlives the service.
  explicit LimitService(engine::AdmissionEngine& engine) : engine_(engine) {}
  // Adds the methods; the service outlives the table's use.
  void Register(MethodTable& table);

  void SetLimit(CallPtr<v1::SetLimitRequest, v1::SetLimitResponse> call);
  void GetLimit(CallPtr<v1::GetLimitRequest, v1::GetLimitResponse> call);
  void ListLimits(CallPtr<v1::ListLimitsRequest, v1::ListLimitsResponse> call);
  void DeleteLimit(CallPtr<v1::DeleteLimitRequest, v1::DeleteLimitResponse> call);

 private:
  engine::AdmissionEngine& engine_;
};

}  // namespace tenure::rpc

// tenure.v1.WorkerService: validate, convert, one engine call, convert back. Leases that a caller does not receive
// after all (it has gone, and named no request id) are given back. Layer: rpc. Thread-safe.
#pragma once

#include "server/engine/engine.h"
#include "server/rpc/field_rules.h"
#include "server/rpc/method_table.h"
#include "tenure/v1/worker_service.pb.h"

namespace tenure::rpc {

class WorkerService {
 public:
  // The engine outlives the service.
  WorkerService(engine::Engine& engine, Limits limits) : engine_(engine), limits_(limits) {}
  // Adds the methods; the service outlives the table's use.
  void Register(MethodTable& table);

  void Claim(CallPtr<v1::ClaimRequest, v1::ClaimResponse> call);
  void Extend(CallPtr<v1::ExtendRequest, v1::ExtendResponse> call);
  void Complete(CallPtr<v1::CompleteRequest, v1::CompleteResponse> call);
  void Fail(CallPtr<v1::FailRequest, v1::FailResponse> call);
  void Release(CallPtr<v1::ReleaseRequest, v1::ReleaseResponse> call);
  void Snooze(CallPtr<v1::SnoozeRequest, v1::SnoozeResponse> call);
  void AwaitNotices(CallPtr<v1::AwaitNoticesRequest, v1::AwaitNoticesResponse> call);
  void ListWorkers(CallPtr<v1::ListWorkersRequest, v1::ListWorkersResponse> call);

 private:
  void ClaimNamed(CallPtr<v1::ClaimRequest, v1::ClaimResponse> call);
  // Arranges that `leases` are given back if the answer does not arrive.
  void GuardDelivery(CallBase& call, engine::ClaimAnswer leases);

  engine::Engine& engine_;
  const Limits limits_;
};

}  // namespace tenure::rpc

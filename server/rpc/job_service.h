// tenure.v1.JobService: validate, convert, one engine call, convert back. Layer: rpc. Thread-safe.
#pragma once

#include "server/engine/engine.h"
#include "server/rpc/field_rules.h"
#include "server/rpc/method_table.h"
#include "tenure/v1/job_service.pb.h"

namespace tenure::rpc {

class JobService {
 public:
  // The engine outlives the service.
  JobService(engine::Engine& engine, Limits limits) : engine_(engine), limits_(limits) {}
  // Adds the methods; the service outlives the table's use.
  void Register(MethodTable& table);

  void Enqueue(CallPtr<v1::EnqueueRequest, v1::EnqueueResponse> call);
  void Get(CallPtr<v1::GetRequest, v1::GetResponse> call);
  void List(CallPtr<v1::ListRequest, v1::ListResponse> call);
  void Cancel(CallPtr<v1::CancelRequest, v1::CancelResponse> call);
  void Retry(CallPtr<v1::RetryRequest, v1::RetryResponse> call);
  void Explain(CallPtr<v1::ExplainRequest, v1::ExplainResponse> call);

 private:
  // One page, or a shorter one if its payloads would outgrow a message.
  void ListPage(CallPtr<v1::ListRequest, v1::ListResponse> call, store::ListFilter filter);

  engine::Engine& engine_;
  const Limits limits_;
};

}  // namespace tenure::rpc

// tenure.v1.QueueService: validate, convert, one engine call, convert back. Layer: rpc. Thread-safe.
#pragma once

#include "server/engine/engine.h"
#include "server/rpc/method_table.h"
#include "tenure/v1/queue_service.pb.h"

namespace tenure::rpc {

class QueueService {
 public:
  // The engine outlives the service.
  explicit QueueService(engine::Engine& engine) : engine_(engine) {}
  // Adds the methods; the service outlives the table's use.
  void Register(MethodTable& table);

  void CreateQueue(CallPtr<v1::CreateQueueRequest, v1::CreateQueueResponse> call);
  void UpdateQueue(CallPtr<v1::UpdateQueueRequest, v1::UpdateQueueResponse> call);
  void GetQueue(CallPtr<v1::GetQueueRequest, v1::GetQueueResponse> call);
  void ListQueues(CallPtr<v1::ListQueuesRequest, v1::ListQueuesResponse> call);
  void PauseQueue(CallPtr<v1::PauseQueueRequest, v1::PauseQueueResponse> call);
  void ResumeQueue(CallPtr<v1::ResumeQueueRequest, v1::ResumeQueueResponse> call);

 private:
  engine::Engine& engine_;
};

}  // namespace tenure::rpc

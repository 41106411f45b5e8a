// A gRPC server that answers what the test tells it to, so that the command line's own behaviour is seen alone. It
// knows nothing of what the real daemon does. Layer: tests. Set the answers first; the recorded requests are guarded.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/rpc/error_details.pb.h"
#include "tenure/v1/admin_service.grpc.pb.h"
#include "tenure/v1/job_service.grpc.pb.h"
#include "tenure/v1/queue_service.grpc.pb.h"
#include "tenure/v1/worker_service.grpc.pb.h"

namespace tenure::testing {

// One method: counts and keeps its requests, answers with `handler`.
template <typename Request, typename Response>
class FakeMethod {
 public:
  std::function<grpc::Status(const Request&, Response&)> handler;

  grpc::Status Serve(const Request* request, Response* response) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      requests_.push_back(*request);
    }
    return handler ? handler(*request, *response)
                   : grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "not set by the test");
  }
  std::vector<Request> requests() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return requests_;
  }

 private:
  std::mutex mutex_;
  std::vector<Request> requests_;
};

// A refusal as the daemon sends it.
inline grpc::Status Refusal(grpc::StatusCode code, const std::string& reason, const std::string& message) {
  google::rpc::ErrorInfo info;
  info.set_reason(reason);
  info.set_domain("tenure");
  google::rpc::Status details;
  details.set_code(code);
  details.add_details()->PackFrom(info);
  return grpc::Status(code, message, details.SerializeAsString());
}

class FakeDaemon {
 public:
  FakeMethod<v1::EnqueueRequest, v1::EnqueueResponse> enqueue;
  FakeMethod<v1::GetRequest, v1::GetResponse> get;
  FakeMethod<v1::ListRequest, v1::ListResponse> list;
  FakeMethod<v1::CancelRequest, v1::CancelResponse> cancel;
  FakeMethod<v1::ClaimRequest, v1::ClaimResponse> claim;
  FakeMethod<v1::CompleteRequest, v1::CompleteResponse> complete;
  FakeMethod<v1::ListWorkersRequest, v1::ListWorkersResponse> list_workers;
  FakeMethod<v1::GetQueueRequest, v1::GetQueueResponse> get_queue;
  FakeMethod<v1::UpdateQueueRequest, v1::UpdateQueueResponse> update_queue;
  FakeMethod<v1::ListQueuesRequest, v1::ListQueuesResponse> list_queues;
  FakeMethod<v1::GetServerInfoRequest, v1::GetServerInfoResponse> server_info;

  FakeDaemon() : jobs_(*this), workers_(*this), queues_(*this), admin_(*this) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&jobs_);
    builder.RegisterService(&workers_);
    builder.RegisterService(&queues_);
    builder.RegisterService(&admin_);
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~FakeDaemon() { server_->Shutdown(); }

  const std::string& address() const { return address_; }

 private:
  using Context = grpc::ServerContext;

  struct Jobs : v1::JobService::Service {
    explicit Jobs(FakeDaemon& owner) : fake(owner) {}
    grpc::Status Enqueue(Context*, const v1::EnqueueRequest* request, v1::EnqueueResponse* response) override {
      return fake.enqueue.Serve(request, response);
    }
    grpc::Status Get(Context*, const v1::GetRequest* request, v1::GetResponse* response) override {
      return fake.get.Serve(request, response);
    }
    grpc::Status List(Context*, const v1::ListRequest* request, v1::ListResponse* response) override {
      return fake.list.Serve(request, response);
    }
    grpc::Status Cancel(Context*, const v1::CancelRequest* request, v1::CancelResponse* response) override {
      return fake.cancel.Serve(request, response);
    }
    FakeDaemon& fake;
  };
  struct Workers : v1::WorkerService::Service {
    explicit Workers(FakeDaemon& owner) : fake(owner) {}
    grpc::Status Claim(Context*, const v1::ClaimRequest* request, v1::ClaimResponse* response) override {
      return fake.claim.Serve(request, response);
    }
    grpc::Status Complete(Context*, const v1::CompleteRequest* request, v1::CompleteResponse* response) override {
      return fake.complete.Serve(request, response);
    }
    grpc::Status ListWorkers(Context*, const v1::ListWorkersRequest* request,
                             v1::ListWorkersResponse* response) override {
      return fake.list_workers.Serve(request, response);
    }
    FakeDaemon& fake;
  };
  struct Queues : v1::QueueService::Service {
    explicit Queues(FakeDaemon& owner) : fake(owner) {}
    grpc::Status GetQueue(Context*, const v1::GetQueueRequest* request, v1::GetQueueResponse* response) override {
      return fake.get_queue.Serve(request, response);
    }
    grpc::Status UpdateQueue(Context*, const v1::UpdateQueueRequest* request,
                             v1::UpdateQueueResponse* response) override {
      return fake.update_queue.Serve(request, response);
    }
    grpc::Status ListQueues(Context*, const v1::ListQueuesRequest* request, v1::ListQueuesResponse* response) override {
      return fake.list_queues.Serve(request, response);
    }
    FakeDaemon& fake;
  };
  struct Admin : v1::AdminService::Service {
    explicit Admin(FakeDaemon& owner) : fake(owner) {}
    grpc::Status GetServerInfo(Context*, const v1::GetServerInfoRequest* request,
                               v1::GetServerInfoResponse* response) override {
      return fake.server_info.Serve(request, response);
    }
    FakeDaemon& fake;
  };

  Jobs jobs_;
  Workers workers_;
  Queues queues_;
  Admin admin_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

}  // namespace tenure::testing

#include "server/rpc/health_service.h"

#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/impl/codegen/server_callback_handlers.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "google/protobuf/wrappers.pb.h"

namespace tenure::rpc {
namespace {

// grpc.health.v1.HealthCheckResponse.ServingStatus.
enum class Status { kServing = 1, kNotServing = 2, kServiceUnknown = 3 };

// HealthCheckRequest is one string in field 1, HealthCheckResponse one enum in field 1: on the wire the same as the
// wrappers.
std::optional<std::string> ServiceOf(const grpc::ByteBuffer& bytes) {
  grpc::ByteBuffer copy(bytes);
  google::protobuf::StringValue request;
  if (!grpc::SerializationTraits<google::protobuf::StringValue>::Deserialize(&copy, &request).ok()) return std::nullopt;
  return request.value();
}

grpc::ByteBuffer Answer(Status status) {
  google::protobuf::Int32Value response;
  response.set_value(static_cast<int>(status));
  grpc::ByteBuffer bytes;
  bool own = false;
  grpc::SerializationTraits<google::protobuf::Int32Value>::Serialize(response, &bytes, &own);
  return bytes;
}

grpc::Status Malformed() {
  return {grpc::StatusCode::INVALID_ARGUMENT, "the bytes are not a grpc.health.v1.HealthCheckRequest"};
}

class Watcher;

class Health final : public HealthService, public grpc::Service {
 public:
  explicit Health(std::vector<std::string> services) : services_(services.begin(), services.end()) {
    services_.insert("");
    AddMethod(new grpc::internal::RpcServiceMethod("/grpc.health.v1.Health/Check",
                                                   grpc::internal::RpcMethod::NORMAL_RPC, nullptr));
    MarkMethodRawCallback(0, new grpc::internal::CallbackUnaryHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
                                 [this](grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) { return Check(context, *request, response); }));
    AddMethod(new grpc::internal::RpcServiceMethod("/grpc.health.v1.Health/Watch",
                                                   grpc::internal::RpcMethod::SERVER_STREAMING, nullptr));
    MarkMethodRawCallback(
        1, new grpc::internal::CallbackServerStreamingHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
               [this](grpc::CallbackServerContext*, const grpc::ByteBuffer* request) { return Watch(*request); }));
  }

  void SetServing(bool serving) override;
  void Shutdown() override;
  grpc::Service& service() override { return *this; }
  void Forget(Watcher* watcher) {
    std::lock_guard lock(mutex_);
    watchers_.erase(watcher);
  }

 private:
  Status StatusOf(const std::string& service) const {
    if (!services_.contains(service)) return Status::kServiceUnknown;
    return serving_ ? Status::kServing : Status::kNotServing;
  }

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context, const grpc::ByteBuffer& request,
                                  grpc::ByteBuffer* response) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    const auto service = ServiceOf(request);
    if (!service) {
      reactor->Finish(Malformed());
      return reactor;
    }
    std::lock_guard lock(mutex_);
    const Status status = StatusOf(*service);
    if (status == Status::kServiceUnknown) {
      reactor->Finish({grpc::StatusCode::NOT_FOUND, "there is no such service"});
    } else {
      *response = Answer(status);
      reactor->Finish(grpc::Status::OK);
    }
    return reactor;
  }

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Watch(const grpc::ByteBuffer& request);

  std::mutex mutex_;  // Before a watcher's.
  std::set<std::string> services_;
  // Guarded by mutex_.
  bool serving_ = false;
  bool shut_down_ = false;
  std::set<Watcher*> watchers_;
};

// One watch. It writes one status at a time and skips those that are outdated when a write ends. Deletes itself in
// OnDone.
class Watcher final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  Watcher(Health& health, std::string service) : health_(health), service_(std::move(service)) {}

  const std::string& service() const { return service_; }

  void Tell(Status status) {
    std::lock_guard lock(mutex_);
    wanted_ = status;
    Go();
  }

  void End(grpc::Status status) {
    std::lock_guard lock(mutex_);
    if (!end_) end_ = std::move(status);
    Go();
  }

  void OnWriteDone(bool ok) override {
    std::lock_guard lock(mutex_);
    writing_ = false;
    if (!ok && !end_) end_ = grpc::Status::CANCELLED;
    Go();
  }

  void OnCancel() override { End(grpc::Status::CANCELLED); }

  void OnDone() override {
    health_.Forget(this);
    delete this;
  }

 private:
  // Requires mutex_.
  void Go() {
    if (writing_ || finished_) return;
    if (end_) {
      finished_ = true;
      Finish(*end_);
    } else if (wanted_ && wanted_ != told_) {
      writing_ = true;
      told_ = wanted_;
      buffer_ = Answer(*wanted_);
      StartWrite(&buffer_);
    }
  }

  Health& health_;
  const std::string service_;
  std::mutex mutex_;
  // Guarded by mutex_.
  std::optional<Status> wanted_;
  std::optional<Status> told_;
  std::optional<grpc::Status> end_;
  bool writing_ = false;
  bool finished_ = false;
  grpc::ByteBuffer buffer_;
};

grpc::Status GoingAway() { return {grpc::StatusCode::UNAVAILABLE, "the daemon is shutting down"}; }

void Health::SetServing(bool serving) {
  std::lock_guard lock(mutex_);
  if (shut_down_ || serving_ == serving) return;
  serving_ = serving;
  for (Watcher* watcher : watchers_) watcher->Tell(StatusOf(watcher->service()));
}

void Health::Shutdown() {
  std::lock_guard lock(mutex_);
  shut_down_ = true;
  serving_ = false;
  for (Watcher* watcher : watchers_) watcher->End(GoingAway());
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* Health::Watch(const grpc::ByteBuffer& request) {
  const auto service = ServiceOf(request);
  auto* watcher = new Watcher(*this, service.value_or(""));
  std::lock_guard lock(mutex_);
  watchers_.insert(watcher);
  if (!service || shut_down_) {
    watcher->End(service ? GoingAway() : Malformed());
  } else {
    watcher->Tell(StatusOf(*service));
  }
  return watcher;
}

}  // namespace

std::unique_ptr<HealthService> HealthService::Make(std::vector<std::string> services) {
  return std::make_unique<Health>(std::move(services));
}

}  // namespace tenure::rpc

#include "server/rpc/grpc_transport.h"

#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/impl/codegen/server_callback_handlers.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/rpc/status_mapping.h"
#include "server/rpc/wire_repair.h"

namespace tenure::rpc {
namespace {

using google::protobuf::MessageLite;

std::optional<absl::Duration> TimeoutOf(const grpc::CallbackServerContext& context) {
  const auto deadline = context.deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) return std::nullopt;
  return absl::FromChrono(deadline - std::chrono::system_clock::now());
}

absl::Status Parse(const grpc::ByteBuffer& bytes, google::protobuf::Message& message) {
  grpc::ByteBuffer copy(bytes);  // Shares the slices; parsing consumes its buffer.
  if (grpc::GenericDeserialize<grpc::ProtoBufferReader, MessageLite>(&copy, &message).ok()) return absl::OkStatus();
  std::vector<grpc::Slice> slices;
  std::string wire;
  if (bytes.Dump(&slices).ok()) {
    for (const grpc::Slice& slice : slices) wire.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    const auto repaired = RepairWire(wire, *message.GetDescriptor());
    if (repaired && message.ParseFromString(*repaired)) return absl::OkStatus();
  }
  return MakeError(absl::StatusCode::kInvalidArgument, "MALFORMED_MESSAGE",
                   absl::StrCat("the bytes are not a message of type ", message.GetDescriptor()->full_name()));
}

// A call on the wire. Deletes itself in OnDone, which gRPC calls last, after Finish and after any OnCancel; so OnCancel
// may always use it, and Finish, which happens once, may come from any thread. After Finish nothing here is touched by
// the finishing thread.
class Reactor final : public grpc::ServerUnaryReactor {
 public:
  Reactor(const Method& method, grpc::CallbackServerContext& context, grpc::ByteBuffer& response)
      : response_(response),
        call_(method.NewCall(TimeoutOf(context), context.peer(),
                             [this](CallBase& call, const absl::Status& status) { Answer(call, status); })) {}

  // The handler may finish at once: until gRPC has been given this reactor it only takes note of that, so this outlives
  // Start.
  void Start(const Method& method, const grpc::CallbackServerContext& context, const grpc::ByteBuffer& request) {
    if (context.IsCancelled()) call_->Cancel();
    absl::Status parsed = Parse(request, call_->request_message());
    if (parsed.ok()) {
      method.Run(call_);
    } else {
      call_->Finish(parsed);
    }
  }

  void OnCancel() override { call_->Cancel(); }

  void OnDone() override {
    // gRPC reports a cancellation also when the answer was ready but could not be written any more.
    call_->Close();
    delete this;
  }

 private:
  void Answer(CallBase& call, const absl::Status& status) {
    if (!status.ok()) return Finish(ToGrpcStatus(status));
    bool own_buffer = false;
    grpc::Status written =
        grpc::GenericSerialize<grpc::ProtoBufferWriter, MessageLite>(call.response_message(), &response_, &own_buffer);
    Finish(std::move(written));
  }

  grpc::ByteBuffer& response_;
  const std::shared_ptr<CallBase> call_;
};

class RawService final : public grpc::Service {
 public:
  explicit RawService(const std::vector<const Method*>& methods) {
    for (size_t i = 0; i < methods.size(); ++i) {
      const Method* method = methods[i];
      AddMethod(
          new grpc::internal::RpcServiceMethod(method->path().c_str(), grpc::internal::RpcMethod::NORMAL_RPC, nullptr));
      MarkMethodRawCallback(static_cast<int>(i),
                            new grpc::internal::CallbackUnaryHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
                                [method](grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response) {
                                  auto* reactor = new Reactor(*method, *context, *response);
                                  reactor->Start(*method, *context, *request);
                                  return reactor;
                                }));
    }
  }
};

}  // namespace

std::vector<GrpcService> MakeGrpcServices(const MethodTable& methods) {
  std::map<std::string, std::vector<const Method*>> by_service;
  for (const auto& [path, method] : methods.methods()) {
    by_service[method->descriptor().service()->full_name()].push_back(method.get());
  }
  std::vector<GrpcService> services;
  for (const auto& [name, of_service] : by_service)
    services.push_back({name, std::make_shared<RawService>(of_service)});
  return services;
}

}  // namespace tenure::rpc

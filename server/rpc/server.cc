#include "server/rpc/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/stubs/logging.h"
#include "server/base/logging.h"
#include "server/base/status.h"
#include "server/rpc/grpc_transport.h"
#include "server/rpc/health_service.h"

namespace tenure::rpc {
namespace {

constexpr auto kHealthInterval = std::chrono::milliseconds(500);

int Milliseconds(absl::Duration d) { return static_cast<int>(absl::ToInt64Milliseconds(d)); }

void ProtobufLog(google::protobuf::LogLevel level, const char* file, int line, const std::string& message) {
  // Errors there are about a caller's bytes; the caller is told by its status. At the level of errors, any client could
  // fill the log.
  if (level < google::protobuf::LOGLEVEL_FATAL) return LogDebug("protobuf", {{"message", message}});
  LogError("protobuf", {{"message", message}, {"at", absl::StrCat(file, ":", line)}});
}

class GrpcServer final : public Server {
 public:
  GrpcServer(engine::Engine& engine, Clock& clock) : engine_(engine), clock_(clock) {}

  ~GrpcServer() override { Shutdown(absl::ZeroDuration()); }

  absl::Status Begin(const ServerOptions& options, const MethodTable& methods) {
    google::protobuf::SetLogHandler(&ProtobufLog);
    static const bool reflection = (grpc::reflection::InitProtoReflectionServerBuilderPlugin(), true);
    static_cast<void>(reflection);

    services_ = MakeGrpcServices(methods);
    std::vector<std::string> names;
    for (const GrpcService& service : services_) names.push_back(service.name);
    health_ = HealthService::Make(std::move(names));
    grpc::ServerBuilder builder;
    builder.AddListeningPort(options.listen,
                             options.credentials ? options.credentials : grpc::InsecureServerCredentials(), &port_);
    for (const GrpcService& service : services_) builder.RegisterService(service.service.get());
    builder.RegisterService(&health_->service());
    builder.SetMaxReceiveMessageSize(options.max_message_bytes);
    builder.SetMaxSendMessageSize(-1);  // What a Claim may hold is its caller's choice (max_bytes).
    builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, options.max_metadata_bytes);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.max_concurrent_streams);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                               Milliseconds(options.min_ping_interval));
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(options.keepalive_time));
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(options.keepalive_timeout));
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // A parked poll sends no data for a minute.
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, Milliseconds(options.max_connection_age));
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, Milliseconds(options.max_connection_age_grace));
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT,
                               0);  // A second daemon on the port gets an error, not half the calls.
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0) {
      server_.reset();
      return MakeError(
          absl::StatusCode::kUnavailable, "LISTEN_FAILED",
          absl::StrCat("cannot listen on ", options.listen,
                       " (gRPC): the address is in use or not this machine's; choose another with --grpc-listen"));
    }
    UpdateHealth();
    health_thread_ = std::thread([this] { WatchHealth(); });
    return absl::OkStatus();
  }

  int port() const override { return port_; }

  void Drain() override {
    std::lock_guard lock(mutex_);
    if (draining_) return;
    draining_ = true;
    health_->SetServing(false);
  }

  void Shutdown(absl::Duration timeout) override {
    {
      std::lock_guard lock(mutex_);
      if (stopping_) return;
      stopping_ = true;
    }
    wake_.notify_all();
    if (health_thread_.joinable()) health_thread_.join();
    if (server_ == nullptr) return;
    health_->Shutdown();
    server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoNanoseconds(timeout));
    server_->Wait();
  }

 private:
  void UpdateHealth() {
    const engine::Health health = engine_.health();
    std::lock_guard lock(mutex_);
    health_->SetServing(health.database_ok && !health.draining && !draining_);
  }

  void WatchHealth() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      const Clock::TimePoint next = clock_.Now() + kHealthInterval;
      while (!stopping_ && clock_.Now() < next) clock_.WaitUntil(lock, wake_, next);
      if (stopping_) return;
      lock.unlock();
      UpdateHealth();
      lock.lock();
    }
  }

  engine::Engine& engine_;
  Clock& clock_;
  int port_ = 0;
  std::vector<GrpcService> services_;
  std::unique_ptr<HealthService> health_;
  std::unique_ptr<grpc::Server> server_;
  std::thread health_thread_;

  std::mutex mutex_;
  std::condition_variable wake_;
  // Guarded by mutex_.
  bool draining_ = false;
  bool stopping_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options, const MethodTable& methods,
                                                      engine::Engine& engine, Clock& clock) {
  auto server = std::make_unique<GrpcServer>(engine, clock);
  TENURE_RETURN_IF_ERROR(server->Begin(options, methods));
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace tenure::rpc

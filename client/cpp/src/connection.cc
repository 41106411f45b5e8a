// See connection.h.
#include "connection.h"

#include <grpcpp/grpcpp.h>

#include <utility>

#include "tenure/errors.h"

namespace tenure::client::internal {
namespace {

using std::chrono::seconds;

// Claims may ask for up to 64 MiB of payload; headers and framing come on top.
constexpr int kMaxReceiveBytes = 80 << 20;

absl::Status Invalid(std::string_view field, std::string_view rule) {
  return MakeStatus(absl::StatusCode::kInvalidArgument, reason::kInvalidField,
                    std::string(field) + ": " + std::string(rule),
                    {{"field", std::string(field)}, {"rule", std::string(rule)}});
}

absl::Status Validate(const ClientOptions& options) {
  if (options.targets.empty()) return Invalid("targets", "must name at least one replica, for example 127.0.0.1:8470");
  for (const std::string& target : options.targets) {
    if (target.empty()) return Invalid("targets", "must not contain an empty target");
  }
  if (options.timeout <= Duration::zero()) return Invalid("timeout", "must be positive");
  if (options.keepalive_interval < seconds(20)) return Invalid("keepalive_interval", "must be at least 20 s");
  if (options.tls.client_certificate_pem.empty() != options.tls.client_key_pem.empty()) {
    return Invalid("tls.client_certificate_pem", "must be set together with tls.client_key_pem");
  }
  if (!options.tls.enabled && (!options.tls.root_certificates_pem.empty() || !options.tls.client_key_pem.empty())) {
    return Invalid("tls.enabled", "must be true if certificates are set");
  }
  if (options.retry.initial_backoff <= Duration::zero() || options.retry.max_backoff < options.retry.initial_backoff ||
      options.retry.multiplier < 1) {
    return Invalid("retry", "needs 0 < initial_backoff <= max_backoff and multiplier >= 1");
  }
  return absl::OkStatus();
}

int Milliseconds(Duration duration) {
  return static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
}

}  // namespace

Endpoint::Endpoint(std::shared_ptr<grpc::ChannelInterface> to)
    : channel(std::move(to)),
      jobs(channel),
      queues(channel),
      schedules(channel),
      targets(channel),
      moves(channel),
      limits(channel),
      workers(channel),
      admin(channel) {}

Connection::Connection(std::vector<std::shared_ptr<grpc::ChannelInterface>> channels, ClientOptions options)
    : options_(std::move(options)) {
  endpoints_.reserve(channels.size());
  for (auto& channel : channels) endpoints_.push_back(std::make_unique<Endpoint>(std::move(channel)));
}

absl::StatusOr<std::shared_ptr<Connection>> Connection::Open(ClientOptions options) {
  if (absl::Status valid = Validate(options); !valid.ok()) return valid;
  grpc::ChannelArguments arguments;
  arguments.SetLoadBalancingPolicyName("round_robin");
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(options.keepalive_interval));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(options.keepalive_timeout));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // gRPC's own reconnect pause grows to two minutes; a daemon that is back should be found within seconds.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 5000);
  arguments.SetMaxReceiveMessageSize(kMaxReceiveBytes);
  arguments.SetUserAgentPrefix("tenure-cpp");
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (options.tls.enabled) {
    grpc::SslCredentialsOptions ssl;
    ssl.pem_root_certs = options.tls.root_certificates_pem;
    ssl.pem_cert_chain = options.tls.client_certificate_pem;
    ssl.pem_private_key = options.tls.client_key_pem;
    credentials = grpc::SslCredentials(ssl);
    if (!options.tls.server_name.empty()) arguments.SetSslTargetNameOverride(options.tls.server_name);
  }
  std::vector<std::shared_ptr<grpc::ChannelInterface>> channels;
  std::vector<std::shared_ptr<grpc::Channel>> opened;
  for (const std::string& target : options.targets) {
    opened.push_back(grpc::CreateCustomChannel(target, credentials, arguments));
    channels.push_back(opened.back());
  }
  if (options.connect_timeout > Duration::zero()) {
    const auto deadline = std::chrono::system_clock::now() + options.connect_timeout;
    bool connected = false;
    // All begin to connect; then the first that is there will do.
    for (const auto& channel : opened) connected |= channel->GetState(true) == GRPC_CHANNEL_READY;
    for (size_t i = 0; i < opened.size() && !connected; ++i) connected = opened[i]->WaitForConnected(deadline);
    if (!connected) {
      return absl::UnavailableError("no daemon answered at " + options.targets.front() +
                                    (options.targets.size() > 1 ? " or the other targets" : "") +
                                    " within connect_timeout: is tenured running and listening there?");
    }
  }
  return std::make_shared<Connection>(std::move(channels), std::move(options));
}

Endpoint& Connection::Pick() {
  const uint32_t start = next_.fetch_add(1, std::memory_order_relaxed);
  const size_t count = endpoints_.size();
  if (count > 1) {
    const SteadyTime::rep now = std::chrono::steady_clock::now().time_since_epoch().count();
    for (size_t i = 0; i < count; ++i) {
      Endpoint& endpoint = *endpoints_[(start + i) % count];
      if (endpoint.avoid_until.load(std::memory_order_relaxed) <= now) return endpoint;
    }
  }
  return *endpoints_[start % count];
}

void Connection::Observe(Endpoint& endpoint, const absl::Status& status) {
  if (status.code() == absl::StatusCode::kUnavailable) {
    if (HasReason(status, reason::kDraining)) return AvoidDraining(endpoint);
    // The database being away is no fault of this replica: the others share it.
    if (HasReason(status, reason::kDatabaseUnavailable)) return;
    endpoint.avoid_until.store((std::chrono::steady_clock::now() + seconds(1)).time_since_epoch().count(),
                               std::memory_order_relaxed);
  }
}

void Connection::AvoidDraining(Endpoint& endpoint) {
  endpoint.avoid_until.store((std::chrono::steady_clock::now() + seconds(5)).time_since_epoch().count(),
                             std::memory_order_relaxed);
}

}  // namespace tenure::client::internal

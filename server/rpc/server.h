// The gRPC server of the daemon: the services of a MethodTable, grpc.health.v1 and reflection on one address.
// Layer: rpc. Thread-safe after Start.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/engine/engine.h"
#include "server/rpc/method_table.h"

namespace grpc {
class ServerCredentials;
}

namespace tenure::rpc {

struct ServerOptions {
  std::string listen = "127.0.0.1:8470";  // HOST:PORT; port 0 takes a free one.
  // Empty: plain text.
  std::shared_ptr<grpc::ServerCredentials> credentials;
  int max_message_bytes = (4 << 20) + (64 << 10);  // A request: 4 MiB of payload and its envelope.
  int max_metadata_bytes = 16 << 10;
  int max_concurrent_streams = 10'000;  // On one connection, parked polls included.
  // Clients may ping so often, also while they have no call.
  absl::Duration min_ping_interval = absl::Seconds(20);
  // A client that does not answer a ping is taken for dead: its polls leave.
  absl::Duration keepalive_time = absl::Seconds(30);
  absl::Duration keepalive_timeout = absl::Seconds(10);
  // Clients reconnect after that, so that new replicas get their share; calls under way have the grace, which is longer
  // than the longest poll.
  absl::Duration max_connection_age = absl::Minutes(5);
  absl::Duration max_connection_age_grace = absl::Seconds(90);
};

class Server {
 public:
  // Listens and serves. `methods`, `engine` and `clock` outlive the server. grpc.health.v1 follows engine.health():
  // SERVING while the database answers and the engine does not drain. UNAVAILABLE / LISTEN_FAILED if the address cannot
  // be had.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options, const MethodTable& methods,
                                                       engine::Engine& engine, Clock& clock);
  // Shutdown with no time left, if it was not called.
  virtual ~Server() = default;

  // The port that was bound.
  virtual int port() const = 0;
  // Health answers NOT_SERVING from now on, whatever the engine says. Calls are still taken. Idempotent.
  virtual void Drain() = 0;
  // Takes no further calls, waits up to `timeout` for those under way, then cancels the rest and waits for them; the
  // engine must still answer its callbacks. Idempotent.
  virtual void Shutdown(absl::Duration timeout) = 0;
};

}  // namespace tenure::rpc

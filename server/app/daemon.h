// The daemon as one object: wires the layers, starts them in order, stops them in reverse. The one place that knows all
// of them. Layer: app. Start, Stop and the destructor from one thread; the rest is thread-safe between Start and Stop.
//
//   database (embedded PostgreSQL, or a URL) -> store -> engine -> background workers -> gRPC -> HTTP
//
// It starts before its database can be reached: then it is not ready, answers UNAVAILABLE, and tries for ever.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/app/configuration.h"

namespace tenure {
class Metrics;
namespace background {
class Supervisor;
}
namespace engine {
class Engine;
}
namespace store {
class Store;
}
}  // namespace tenure

namespace tenure::app {

class Daemon {
 public:
  // Returns once both ports are served; the database may still be away, except that the embedded one has been started
  // and migrated. UNAVAILABLE with reason LISTEN_FAILED, saying what to do, if a port cannot be had; the errors of
  // embedded::Postgres::Start; FAILED_PRECONDITION if a migration of the embedded database fails. All is undone then.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const Configuration& configuration);
  // Stop, if it was not called.
  virtual ~Daemon() = default;

  // Drains: not ready any more, parked polls answered, calls under way finished, leader leases given back; then
  // everything is stopped within configuration.shutdown_grace, and the embedded PostgreSQL after it. Idempotent.
  // DEADLINE_EXCEEDED if something had to be cut off.
  virtual absl::Status Stop() = 0;

  // Why it cannot serve now; OK if it can.
  virtual absl::Status Ready() const = 0;
  // OK unless it cannot go on (the embedded PostgreSQL came back at another address): stop it then.
  virtual absl::Status Failure() const = 0;

  virtual int grpc_port() const = 0;
  virtual int http_port() const = 0;
  // HOST:PORT that a client on this machine can use.
  virtual std::string grpc_address() const = 0;
  virtual std::string http_address() const = 0;
  virtual const std::string& database_url() const = 0;
  // As for messages, without password.
  virtual const std::string& database_description() const = 0;

  virtual engine::Engine& engine() = 0;
  virtual store::Store& store() = 0;
  virtual background::Supervisor& supervisor() = 0;
  virtual Metrics& metrics() = 0;
};

}  // namespace tenure::app

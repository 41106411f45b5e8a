// grpc.health.v1.Health: Check and Watch. Not gRPC's built-in one, because its watches end only with the server: one
// client that watches would hold every shutdown to its deadline. Layer: rpc. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace grpc {
class Service;
}

namespace tenure::rpc {

class HealthService {
 public:
  // All of `services`, and the empty name for the server as a whole, share one status. Starts as NOT_SERVING.
  static std::unique_ptr<HealthService> Make(std::vector<std::string> services);
  virtual ~HealthService() = default;

  // Told to all watchers. Idempotent.
  virtual void SetServing(bool serving) = 0;
  // NOT_SERVING for good, and every watch ends with UNAVAILABLE; new ones end at once. Idempotent.
  virtual void Shutdown() = 0;
  // To be registered with the server; lives as long as this.
  virtual grpc::Service& service() = 0;
};

}  // namespace tenure::rpc

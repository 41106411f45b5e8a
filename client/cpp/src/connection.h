// Connection: the channels to the daemon's replicas and the choice among them. Shared by all copies of a Client.
// Layer: client; the only header of the library, next to rpc.h, that includes gRPC. Thread-safe.
//
// Each target has a channel. Calls go round robin over them; a channel that answered UNAVAILABLE is avoided for a
// second, one whose replica drains for five, unless there is no other. Inside a channel gRPC's round_robin spreads over
// a name's addresses.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tenure/client.h"
#include "tenure/v1/admin_service.grpc.pb.h"
#include "tenure/v1/job_service.grpc.pb.h"
#include "tenure/v1/limit_service.grpc.pb.h"
#include "tenure/v1/move_service.grpc.pb.h"
#include "tenure/v1/queue_service.grpc.pb.h"
#include "tenure/v1/schedule_service.grpc.pb.h"
#include "tenure/v1/target_service.grpc.pb.h"
#include "tenure/v1/worker_service.grpc.pb.h"

namespace tenure::client::internal {

struct Endpoint {
  explicit Endpoint(std::shared_ptr<grpc::ChannelInterface> to);

  const std::shared_ptr<grpc::ChannelInterface> channel;
  v1::JobService::Stub jobs;
  v1::QueueService::Stub queues;
  v1::ScheduleService::Stub schedules;
  v1::TargetService::Stub targets;
  v1::MoveService::Stub moves;
  v1::LimitService::Stub limits;
  v1::WorkerService::Stub workers;
  v1::AdminService::Stub admin;
  std::atomic<SteadyTime::rep> avoid_until{0};
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::vector<std::shared_ptr<grpc::ChannelInterface>> channels, ClientOptions options);

  // INVALID_ARGUMENT naming the option that is wrong; UNAVAILABLE if connect_timeout passed.
  static absl::StatusOr<std::shared_ptr<Connection>> Open(ClientOptions options);

  // The endpoint for the next call.
  Endpoint& Pick();
  // Learns from how a call on `endpoint` ended.
  void Observe(Endpoint& endpoint, const absl::Status& status);
  // Its replica said that it drains.
  void AvoidDraining(Endpoint& endpoint);

  const ClientOptions& options() const { return options_; }

 private:
  const ClientOptions options_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  std::atomic<uint32_t> next_{0};
};

}  // namespace tenure::client::internal

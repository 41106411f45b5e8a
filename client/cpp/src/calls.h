// The API's calls, without gRPC in sight: blocking ones that repeat themselves by the retry policy, and asynchronous
// ones, sent once, for the loops that keep state over a failure (claims, settles, extends, notices). Layer: client.
// Thread-safe.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "tenure/client.h"
#include "tenure/v1/admin_service.pb.h"
#include "tenure/v1/job_service.pb.h"
#include "tenure/v1/limit_service.pb.h"
#include "tenure/v1/move_service.pb.h"
#include "tenure/v1/queue_service.pb.h"
#include "tenure/v1/schedule_service.pb.h"
#include "tenure/v1/target_service.pb.h"
#include "tenure/v1/worker_service.pb.h"

namespace tenure::client::internal {

class Connection;

// Service, stub of Endpoint, method.
#define TENURE_CLIENT_RPCS(X)                    \
  X(JobService, jobs, Enqueue)                   \
  X(JobService, jobs, Get)                       \
  X(JobService, jobs, List)                      \
  X(JobService, jobs, Cancel)                    \
  X(JobService, jobs, Retry)                     \
  X(JobService, jobs, Explain)                   \
  X(QueueService, queues, CreateQueue)           \
  X(QueueService, queues, UpdateQueue)           \
  X(QueueService, queues, GetQueue)              \
  X(QueueService, queues, ListQueues)            \
  X(QueueService, queues, PauseQueue)            \
  X(QueueService, queues, ResumeQueue)           \
  X(ScheduleService, schedules, CreateSchedule)  \
  X(ScheduleService, schedules, UpdateSchedule)  \
  X(ScheduleService, schedules, GetSchedule)     \
  X(ScheduleService, schedules, ListSchedules)   \
  X(ScheduleService, schedules, DeleteSchedule)  \
  X(ScheduleService, schedules, PauseSchedule)   \
  X(ScheduleService, schedules, ResumeSchedule)  \
  X(ScheduleService, schedules, TriggerSchedule) \
  X(TargetService, targets, CreateTarget)        \
  X(TargetService, targets, UpdateTarget)        \
  X(TargetService, targets, GetTarget)           \
  X(TargetService, targets, ListTargets)         \
  X(TargetService, targets, DeleteTarget)        \
  X(TargetService, targets, PauseTarget)         \
  X(TargetService, targets, ResumeTarget)        \
  X(TargetService, targets, ListDeadDeliveries)  \
  X(TargetService, targets, RedriveDeliveries)   \
  X(MoveService, moves, CreateMove)              \
  X(MoveService, moves, GetMove)                 \
  X(MoveService, moves, ListMoves)               \
  X(MoveService, moves, PauseMove)               \
  X(MoveService, moves, ResumeMove)              \
  X(MoveService, moves, CancelMove)              \
  X(LimitService, limits, SetLimit)              \
  X(LimitService, limits, GetLimit)              \
  X(LimitService, limits, ListLimits)            \
  X(LimitService, limits, DeleteLimit)           \
  X(WorkerService, workers, Claim)               \
  X(WorkerService, workers, Extend)              \
  X(WorkerService, workers, Complete)            \
  X(WorkerService, workers, Fail)                \
  X(WorkerService, workers, Release)             \
  X(WorkerService, workers, Snooze)              \
  X(WorkerService, workers, AwaitNotices)        \
  X(WorkerService, workers, ListWorkers)         \
  X(AdminService, admin, GetServerInfo)          \
  X(AdminService, admin, ListServers)            \
  X(AdminService, admin, ListBackgroundWorkers)

// How a blocking call is bounded.
struct CallBounds {
  Duration timeout;  // All attempts and pauses together.
  std::stop_token stop;
  bool long_poll = false;      // The daemon may rightly take most of the timeout: no attempt is cut short.
  SteadyTime* sent = nullptr;  // Set to when the attempt that was answered was sent.
};

// CallOptions' timeout (default: the client's, plus `wait`).
CallBounds BoundsOf(const Connection& connection, const CallOptions& options, Duration wait = Duration::zero());

// Call(connection, request, response, bounds): blocks; repeats by the verdict on the RPC.
#define TENURE_DECLARE_CALL(service, stub, method)                                                              \
  absl::Status Call(Connection& connection, const v1::method##Request& request, v1::method##Response* response, \
                    const CallBounds& bounds);
TENURE_CLIENT_RPCS(TENURE_DECLARE_CALL)
#undef TENURE_DECLARE_CALL

// An asynchronous call under way. Dropping the handle does not end the call.
class AsyncCall {
 public:
  virtual ~AsyncCall() = default;
  // Ends it with CANCELLED unless it has just been answered. Its callback runs all the same.
  virtual void Cancel() = 0;
};

// Runs exactly once, on a gRPC thread; must not block. Request and response may be moved from.
template <typename Request, typename Response>
using Done = std::function<void(absl::Status status, Request& request, Response& response)>;

#define TENURE_CLIENT_ASYNC_RPCS(X) X(Claim) X(Extend) X(Complete) X(Fail) X(Release) X(Snooze) X(AwaitNotices)
// Start(connection, request, timeout, done): sends it once.
#define TENURE_DECLARE_START(method)                                                                      \
  std::shared_ptr<AsyncCall> Start(Connection& connection, v1::method##Request request, Duration timeout, \
                                   Done<v1::method##Request, v1::method##Response> done);
TENURE_CLIENT_ASYNC_RPCS(TENURE_DECLARE_START)
#undef TENURE_DECLARE_START

// A Client's connection, for the other parts of the library.
struct ClientAccess {
  static const std::shared_ptr<Connection>& ConnectionOf(const Client& client) { return client.connection_; }
  static Client Make(std::shared_ptr<Connection> connection) { return Client(std::move(connection)); }
};
const ClientOptions& OptionsOf(const Connection& connection);

}  // namespace tenure::client::internal

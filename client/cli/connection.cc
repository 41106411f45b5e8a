// The gRPC side of the command line. Layer: client/cli. Thread-safe: the channel and the stubs are.
#include "client/cli/connection.h"

#include <grpcpp/grpcpp.h>
#include <poll.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/errors.h"
#include "client/cli/values.h"
#include "tenure/v1/admin_service.grpc.pb.h"
#include "tenure/v1/job_service.grpc.pb.h"
#include "tenure/v1/limit_service.grpc.pb.h"
#include "tenure/v1/move_service.grpc.pb.h"
#include "tenure/v1/queue_service.grpc.pb.h"
#include "tenure/v1/schedule_service.grpc.pb.h"
#include "tenure/v1/target_service.grpc.pb.h"
#include "tenure/v1/worker_service.grpc.pb.h"

namespace tenure::cli {
namespace {

enum class Repeat { kSafe, kOnce };

constexpr int kAttempts = 3;
constexpr absl::Duration kFirstBackoff = absl::Milliseconds(100);
// A claim's reply may hold 64 MiB of payload; leave room for what surrounds it.
constexpr int kMaxReceiveBytes = 80 * 1024 * 1024;

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& server) {
  grpc::ChannelArguments arguments;
  // A proxy from the environment is meant for the web, not for a daemon next door.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // The backoff between connection attempts would otherwise outlast our own retries.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetMaxReceiveMessageSize(kMaxReceiveBytes);
  arguments.SetUserAgentPrefix("tenurectl");
  return grpc::CreateCustomChannel(server, grpc::InsecureChannelCredentials(), arguments);
}

bool AllHaveKeys(const v1::EnqueueRequest& request) {
  return std::all_of(request.jobs().begin(), request.jobs().end(),
                     [](const v1::JobSpec& job) { return !job.idempotency_key().empty(); });
}

}  // namespace

void Pause(absl::Duration duration) { poll(nullptr, 0, static_cast<int>(absl::ToInt64Milliseconds(duration))); }

struct Connection::Impl {
  Impl(std::string server_address, absl::Duration call_timeout)
      : server(std::move(server_address)),
        timeout(call_timeout),
        channel(MakeChannel(server)),
        jobs(v1::JobService::NewStub(channel)),
        workers(v1::WorkerService::NewStub(channel)),
        queues(v1::QueueService::NewStub(channel)),
        schedules(v1::ScheduleService::NewStub(channel)),
        targets(v1::TargetService::NewStub(channel)),
        moves(v1::MoveService::NewStub(channel)),
        limits(v1::LimitService::NewStub(channel)),
        admin(v1::AdminService::NewStub(channel)) {}

  absl::Status Convert(const grpc::Status& status, absl::Duration deadline) const {
    absl::Status converted(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
    AttachDetails(converted, status.error_details());
    // The daemon gives its own refusals a reason; without one, these two codes come from the transport.
    const bool from_transport =
        status.error_details().empty() && (status.error_code() == grpc::StatusCode::UNAVAILABLE ||
                                           status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED);
    if (!from_transport) return converted;
    const bool late = status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
    absl::Status unreachable(
        converted.code(),
        late ? absl::StrCat("the daemon at ", server, " did not answer within ", ShowDuration(deadline))
             : absl::StrCat("cannot reach a Tenure daemon at ", server, ": ", OneLine(status.error_message(), 300)));
    MarkUnreachable(unreachable);
    return unreachable;
  }

  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Call(Stub& stub,
                                grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                                const Request& request, Repeat repeat, absl::Duration wait = absl::ZeroDuration()) {
    absl::Duration backoff = kFirstBackoff;
    const absl::Duration deadline = timeout + wait;
    for (int attempt = 1;; ++attempt) {
      grpc::ClientContext context;
      context.set_deadline(absl::ToChronoTime(absl::Now() + deadline));
      Response response;
      const grpc::Status status = (stub.*method)(&context, request, &response);
      if (status.ok()) return response;
      const absl::Status converted = Convert(status, deadline);
      const ErrorFacts facts = FactsOf(converted);
      const bool not_begun = facts.reason == "OVERLOADED";
      const bool may_repeat =
          not_begun || (repeat == Repeat::kSafe && status.error_code() == grpc::StatusCode::UNAVAILABLE);
      if (!may_repeat || attempt == kAttempts) return converted;
      Pause(std::min(facts.retry_after.value_or(backoff), timeout));
      backoff *= 2;
    }
  }

  const std::string server;
  const absl::Duration timeout;
  const std::shared_ptr<grpc::Channel> channel;
  const std::unique_ptr<v1::JobService::Stub> jobs;
  const std::unique_ptr<v1::WorkerService::Stub> workers;
  const std::unique_ptr<v1::QueueService::Stub> queues;
  const std::unique_ptr<v1::ScheduleService::Stub> schedules;
  const std::unique_ptr<v1::TargetService::Stub> targets;
  const std::unique_ptr<v1::MoveService::Stub> moves;
  const std::unique_ptr<v1::LimitService::Stub> limits;
  const std::unique_ptr<v1::AdminService::Stub> admin;
};

Connection::Connection(std::string server, absl::Duration timeout)
    : impl_(std::make_unique<Impl>(std::move(server), timeout)) {}

Connection::~Connection() = default;

absl::StatusOr<v1::EnqueueResponse> Connection::Enqueue(const v1::EnqueueRequest& request) {
  return impl_->Call(*impl_->jobs, &v1::JobService::Stub::Enqueue, request,
                     AllHaveKeys(request) ? Repeat::kSafe : Repeat::kOnce);
}

absl::StatusOr<v1::GetResponse> Connection::Get(const v1::GetRequest& request) {
  return impl_->Call(*impl_->jobs, &v1::JobService::Stub::Get, request, Repeat::kSafe, FromProto(request.wait()));
}

absl::StatusOr<v1::ListResponse> Connection::List(const v1::ListRequest& request) {
  return impl_->Call(*impl_->jobs, &v1::JobService::Stub::List, request, Repeat::kSafe);
}

absl::StatusOr<v1::CancelResponse> Connection::Cancel(const v1::CancelRequest& request) {
  return impl_->Call(*impl_->jobs, &v1::JobService::Stub::Cancel, request, Repeat::kSafe);
}

absl::StatusOr<v1::RetryResponse> Connection::Retry(const v1::RetryRequest& request) {
  return impl_->Call(*impl_->jobs, &v1::JobService::Stub::Retry, request,
                     request.request_id().empty() ? Repeat::kOnce : Repeat::kSafe);
}

absl::StatusOr<v1::ClaimResponse> Connection::Claim(const v1::ClaimRequest& request) {
  return impl_->Call(*impl_->workers, &v1::WorkerService::Stub::Claim, request,
                     request.request_id().empty() ? Repeat::kOnce : Repeat::kSafe, FromProto(request.wait()));
}

absl::StatusOr<v1::ExtendResponse> Connection::Extend(const v1::ExtendRequest& request) {
  return impl_->Call(*impl_->workers, &v1::WorkerService::Stub::Extend, request, Repeat::kSafe);
}

absl::StatusOr<v1::CompleteResponse> Connection::Complete(const v1::CompleteRequest& request) {
  return impl_->Call(*impl_->workers, &v1::WorkerService::Stub::Complete, request, Repeat::kSafe);
}

absl::StatusOr<v1::FailResponse> Connection::Fail(const v1::FailRequest& request) {
  return impl_->Call(*impl_->workers, &v1::WorkerService::Stub::Fail, request, Repeat::kSafe);
}

absl::StatusOr<v1::ReleaseResponse> Connection::Release(const v1::ReleaseRequest& request) {
  return impl_->Call(*impl_->workers, &v1::WorkerService::Stub::Release, request, Repeat::kSafe);
}

absl::StatusOr<v1::SnoozeResponse> Connection::Snooze(const v1::SnoozeRequest& request) {
  return impl_->Call(*impl_->workers, &v1::WorkerService::Stub::Snooze, request, Repeat::kSafe);
}

absl::StatusOr<v1::ListWorkersResponse> Connection::ListWorkers(const v1::ListWorkersRequest& request) {
  return impl_->Call(*impl_->workers, &v1::WorkerService::Stub::ListWorkers, request, Repeat::kSafe);
}

absl::StatusOr<v1::CreateQueueResponse> Connection::CreateQueue(const v1::CreateQueueRequest& request) {
  return impl_->Call(*impl_->queues, &v1::QueueService::Stub::CreateQueue, request, Repeat::kOnce);
}

absl::StatusOr<v1::UpdateQueueResponse> Connection::UpdateQueue(const v1::UpdateQueueRequest& request) {
  return impl_->Call(*impl_->queues, &v1::QueueService::Stub::UpdateQueue, request, Repeat::kSafe);
}

absl::StatusOr<v1::GetQueueResponse> Connection::GetQueue(const v1::GetQueueRequest& request) {
  return impl_->Call(*impl_->queues, &v1::QueueService::Stub::GetQueue, request, Repeat::kSafe);
}

absl::StatusOr<v1::ListQueuesResponse> Connection::ListQueues(const v1::ListQueuesRequest& request) {
  return impl_->Call(*impl_->queues, &v1::QueueService::Stub::ListQueues, request, Repeat::kSafe);
}

absl::StatusOr<v1::PauseQueueResponse> Connection::PauseQueue(const v1::PauseQueueRequest& request) {
  return impl_->Call(*impl_->queues, &v1::QueueService::Stub::PauseQueue, request, Repeat::kSafe);
}

absl::StatusOr<v1::ResumeQueueResponse> Connection::ResumeQueue(const v1::ResumeQueueRequest& request) {
  return impl_->Call(*impl_->queues, &v1::QueueService::Stub::ResumeQueue, request, Repeat::kSafe);
}

absl::StatusOr<v1::ExplainResponse> Connection::Explain(const v1::ExplainRequest& request) {
  return impl_->Call(*impl_->jobs, &v1::JobService::Stub::Explain, request, Repeat::kSafe);
}

absl::StatusOr<v1::SetLimitResponse> Connection::SetLimit(const v1::SetLimitRequest& request) {
  return impl_->Call(*impl_->limits, &v1::LimitService::Stub::SetLimit, request, Repeat::kSafe);
}

absl::StatusOr<v1::GetLimitResponse> Connection::GetLimit(const v1::GetLimitRequest& request) {
  return impl_->Call(*impl_->limits, &v1::LimitService::Stub::GetLimit, request, Repeat::kSafe);
}

absl::StatusOr<v1::ListLimitsResponse> Connection::ListLimits(const v1::ListLimitsRequest& request) {
  return impl_->Call(*impl_->limits, &v1::LimitService::Stub::ListLimits, request, Repeat::kSafe);
}

absl::StatusOr<v1::DeleteLimitResponse> Connection::DeleteLimit(const v1::DeleteLimitRequest& request) {
  return impl_->Call(*impl_->limits, &v1::LimitService::Stub::DeleteLimit, request, Repeat::kOnce);
}

absl::StatusOr<v1::CreateScheduleResponse> Connection::CreateSchedule(const v1::CreateScheduleRequest& request) {
  return impl_->Call(*impl_->schedules, &v1::ScheduleService::Stub::CreateSchedule, request, Repeat::kOnce);
}

absl::StatusOr<v1::UpdateScheduleResponse> Connection::UpdateSchedule(const v1::UpdateScheduleRequest& request) {
  return impl_->Call(*impl_->schedules, &v1::ScheduleService::Stub::UpdateSchedule, request, Repeat::kSafe);
}

absl::StatusOr<v1::GetScheduleResponse> Connection::GetSchedule(const v1::GetScheduleRequest& request) {
  return impl_->Call(*impl_->schedules, &v1::ScheduleService::Stub::GetSchedule, request, Repeat::kSafe);
}

absl::StatusOr<v1::ListSchedulesResponse> Connection::ListSchedules(const v1::ListSchedulesRequest& request) {
  return impl_->Call(*impl_->schedules, &v1::ScheduleService::Stub::ListSchedules, request, Repeat::kSafe);
}

absl::StatusOr<v1::DeleteScheduleResponse> Connection::DeleteSchedule(const v1::DeleteScheduleRequest& request) {
  return impl_->Call(*impl_->schedules, &v1::ScheduleService::Stub::DeleteSchedule, request, Repeat::kOnce);
}

absl::StatusOr<v1::PauseScheduleResponse> Connection::PauseSchedule(const v1::PauseScheduleRequest& request) {
  return impl_->Call(*impl_->schedules, &v1::ScheduleService::Stub::PauseSchedule, request, Repeat::kSafe);
}

absl::StatusOr<v1::ResumeScheduleResponse> Connection::ResumeSchedule(const v1::ResumeScheduleRequest& request) {
  return impl_->Call(*impl_->schedules, &v1::ScheduleService::Stub::ResumeSchedule, request, Repeat::kSafe);
}

absl::StatusOr<v1::TriggerScheduleResponse> Connection::TriggerSchedule(const v1::TriggerScheduleRequest& request) {
  return impl_->Call(*impl_->schedules, &v1::ScheduleService::Stub::TriggerSchedule, request,
                     request.request_id().empty() ? Repeat::kOnce : Repeat::kSafe);
}

absl::StatusOr<v1::CreateTargetResponse> Connection::CreateTarget(const v1::CreateTargetRequest& request) {
  return impl_->Call(*impl_->targets, &v1::TargetService::Stub::CreateTarget, request, Repeat::kOnce);
}

absl::StatusOr<v1::UpdateTargetResponse> Connection::UpdateTarget(const v1::UpdateTargetRequest& request) {
  return impl_->Call(*impl_->targets, &v1::TargetService::Stub::UpdateTarget, request, Repeat::kSafe);
}

absl::StatusOr<v1::GetTargetResponse> Connection::GetTarget(const v1::GetTargetRequest& request) {
  return impl_->Call(*impl_->targets, &v1::TargetService::Stub::GetTarget, request, Repeat::kSafe);
}

absl::StatusOr<v1::ListTargetsResponse> Connection::ListTargets(const v1::ListTargetsRequest& request) {
  return impl_->Call(*impl_->targets, &v1::TargetService::Stub::ListTargets, request, Repeat::kSafe);
}

absl::StatusOr<v1::DeleteTargetResponse> Connection::DeleteTarget(const v1::DeleteTargetRequest& request) {
  return impl_->Call(*impl_->targets, &v1::TargetService::Stub::DeleteTarget, request, Repeat::kOnce);
}

absl::StatusOr<v1::PauseTargetResponse> Connection::PauseTarget(const v1::PauseTargetRequest& request) {
  return impl_->Call(*impl_->targets, &v1::TargetService::Stub::PauseTarget, request, Repeat::kSafe);
}

absl::StatusOr<v1::ResumeTargetResponse> Connection::ResumeTarget(const v1::ResumeTargetRequest& request) {
  return impl_->Call(*impl_->targets, &v1::TargetService::Stub::ResumeTarget, request, Repeat::kSafe);
}

absl::StatusOr<v1::ListDeadDeliveriesResponse> Connection::ListDeadDeliveries(
    const v1::ListDeadDeliveriesRequest& request) {
  return impl_->Call(*impl_->targets, &v1::TargetService::Stub::ListDeadDeliveries, request, Repeat::kSafe);
}

absl::StatusOr<v1::RedriveDeliveriesResponse> Connection::RedriveDeliveries(
    const v1::RedriveDeliveriesRequest& request) {
  return impl_->Call(*impl_->targets, &v1::TargetService::Stub::RedriveDeliveries, request, Repeat::kSafe);
}

absl::StatusOr<v1::CreateMoveResponse> Connection::CreateMove(const v1::CreateMoveRequest& request) {
  return impl_->Call(*impl_->moves, &v1::MoveService::Stub::CreateMove, request,
                     request.request_id().empty() ? Repeat::kOnce : Repeat::kSafe);
}

absl::StatusOr<v1::GetMoveResponse> Connection::GetMove(const v1::GetMoveRequest& request) {
  return impl_->Call(*impl_->moves, &v1::MoveService::Stub::GetMove, request, Repeat::kSafe);
}

absl::StatusOr<v1::ListMovesResponse> Connection::ListMoves(const v1::ListMovesRequest& request) {
  return impl_->Call(*impl_->moves, &v1::MoveService::Stub::ListMoves, request, Repeat::kSafe);
}

absl::StatusOr<v1::PauseMoveResponse> Connection::PauseMove(const v1::PauseMoveRequest& request) {
  return impl_->Call(*impl_->moves, &v1::MoveService::Stub::PauseMove, request, Repeat::kSafe);
}

absl::StatusOr<v1::ResumeMoveResponse> Connection::ResumeMove(const v1::ResumeMoveRequest& request) {
  return impl_->Call(*impl_->moves, &v1::MoveService::Stub::ResumeMove, request, Repeat::kSafe);
}

absl::StatusOr<v1::CancelMoveResponse> Connection::CancelMove(const v1::CancelMoveRequest& request) {
  return impl_->Call(*impl_->moves, &v1::MoveService::Stub::CancelMove, request, Repeat::kSafe);
}

absl::StatusOr<v1::GetServerInfoResponse> Connection::GetServerInfo(const v1::GetServerInfoRequest& request) {
  return impl_->Call(*impl_->admin, &v1::AdminService::Stub::GetServerInfo, request, Repeat::kSafe);
}

absl::StatusOr<v1::ListServersResponse> Connection::ListServers(const v1::ListServersRequest& request) {
  return impl_->Call(*impl_->admin, &v1::AdminService::Stub::ListServers, request, Repeat::kSafe);
}

absl::StatusOr<v1::ListBackgroundWorkersResponse> Connection::ListBackgroundWorkers(
    const v1::ListBackgroundWorkersRequest& request) {
  return impl_->Call(*impl_->admin, &v1::AdminService::Stub::ListBackgroundWorkers, request, Repeat::kSafe);
}

}  // namespace tenure::cli

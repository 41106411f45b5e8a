// The one place where the command line meets gRPC: a method for each RPC it uses, with deadlines, retries by a written
// verdict, and the decoding of google.rpc details. Headers of gRPC stay in connection.cc. Layer: client/cli.
// Thread-safe.
//
// Every method answers the response or a status for FactsOf (errors.h): a refusal by the daemon with its reason, or
// UNREACHABLE when nobody answered within the deadline. The verdict behind each name:
//   safe      repeated up to twice after UNAVAILABLE, because a second call changes nothing more than the first
//   once      never repeated, because the first call may have had its effect
// Whatever the verdict, a call that was refused as OVERLOADED was not begun and is repeated after the delay it was
// given.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tenure/v1/admin_service.pb.h"
#include "tenure/v1/job_service.pb.h"
#include "tenure/v1/limit_service.pb.h"
#include "tenure/v1/move_service.pb.h"
#include "tenure/v1/queue_service.pb.h"
#include "tenure/v1/schedule_service.pb.h"
#include "tenure/v1/target_service.pb.h"
#include "tenure/v1/worker_service.pb.h"

namespace tenure::cli {

// Waits out a backoff between two calls; a signal ends it early.
void Pause(absl::Duration duration);

class Connection {
 public:
  // Connects lazily. `timeout` is each call's deadline; long polls add their own wait to it.
  Connection(std::string server, absl::Duration timeout);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Safe if each job carries an idempotency key, else once.
  absl::StatusOr<v1::EnqueueResponse> Enqueue(const v1::EnqueueRequest& request);
  absl::StatusOr<v1::GetResponse> Get(const v1::GetRequest& request);           // Safe.
  absl::StatusOr<v1::ListResponse> List(const v1::ListRequest& request);        // Safe.
  absl::StatusOr<v1::CancelResponse> Cancel(const v1::CancelRequest& request);  // Safe.
  // Safe with a request_id, else once.
  absl::StatusOr<v1::RetryResponse> Retry(const v1::RetryRequest& request);
  absl::StatusOr<v1::ExplainResponse> Explain(const v1::ExplainRequest& request);  // Safe.

  // Safe with a request_id, else once.
  absl::StatusOr<v1::ClaimResponse> Claim(const v1::ClaimRequest& request);
  absl::StatusOr<v1::ExtendResponse> Extend(const v1::ExtendRequest& request);        // Safe.
  absl::StatusOr<v1::CompleteResponse> Complete(const v1::CompleteRequest& request);  // Safe: fenced by the token.
  absl::StatusOr<v1::FailResponse> Fail(const v1::FailRequest& request);              // Safe: fenced by the token.
  absl::StatusOr<v1::ReleaseResponse> Release(const v1::ReleaseRequest& request);     // Safe: fenced by the token.
  absl::StatusOr<v1::SnoozeResponse> Snooze(const v1::SnoozeRequest& request);        // Safe: fenced by the token.
  absl::StatusOr<v1::ListWorkersResponse> ListWorkers(const v1::ListWorkersRequest& request);  // Safe.

  // Once: a repeat would answer QUEUE_EXISTS.
  absl::StatusOr<v1::CreateQueueResponse> CreateQueue(const v1::CreateQueueRequest& request);
  absl::StatusOr<v1::UpdateQueueResponse> UpdateQueue(const v1::UpdateQueueRequest& request);  // Safe.
  absl::StatusOr<v1::GetQueueResponse> GetQueue(const v1::GetQueueRequest& request);           // Safe.
  absl::StatusOr<v1::ListQueuesResponse> ListQueues(const v1::ListQueuesRequest& request);     // Safe.
  absl::StatusOr<v1::PauseQueueResponse> PauseQueue(const v1::PauseQueueRequest& request);     // Safe.
  absl::StatusOr<v1::ResumeQueueResponse> ResumeQueue(const v1::ResumeQueueRequest& request);  // Safe.

  absl::StatusOr<v1::SetLimitResponse> SetLimit(const v1::SetLimitRequest& request);        // Safe.
  absl::StatusOr<v1::GetLimitResponse> GetLimit(const v1::GetLimitRequest& request);        // Safe.
  absl::StatusOr<v1::ListLimitsResponse> ListLimits(const v1::ListLimitsRequest& request);  // Safe.
  // Once: a repeat would answer LIMIT_NOT_FOUND.
  absl::StatusOr<v1::DeleteLimitResponse> DeleteLimit(const v1::DeleteLimitRequest& request);
  // Once: a repeat would answer SCHEDULE_EXISTS.
  absl::StatusOr<v1::CreateScheduleResponse> CreateSchedule(const v1::CreateScheduleRequest& request);
  absl::StatusOr<v1::UpdateScheduleResponse> UpdateSchedule(const v1::UpdateScheduleRequest& request);  // Safe.
  absl::StatusOr<v1::GetScheduleResponse> GetSchedule(const v1::GetScheduleRequest& request);           // Safe.
  absl::StatusOr<v1::ListSchedulesResponse> ListSchedules(const v1::ListSchedulesRequest& request);     // Safe.
  // Once: a repeat would answer SCHEDULE_NOT_FOUND.
  absl::StatusOr<v1::DeleteScheduleResponse> DeleteSchedule(const v1::DeleteScheduleRequest& request);
  absl::StatusOr<v1::PauseScheduleResponse> PauseSchedule(const v1::PauseScheduleRequest& request);     // Safe.
  absl::StatusOr<v1::ResumeScheduleResponse> ResumeSchedule(const v1::ResumeScheduleRequest& request);  // Safe.
  // Safe with a request_id, else once.
  absl::StatusOr<v1::TriggerScheduleResponse> TriggerSchedule(const v1::TriggerScheduleRequest& request);

  // Once: a repeat would answer TARGET_EXISTS.
  absl::StatusOr<v1::CreateTargetResponse> CreateTarget(const v1::CreateTargetRequest& request);
  absl::StatusOr<v1::UpdateTargetResponse> UpdateTarget(const v1::UpdateTargetRequest& request);  // Safe.
  absl::StatusOr<v1::GetTargetResponse> GetTarget(const v1::GetTargetRequest& request);           // Safe.
  absl::StatusOr<v1::ListTargetsResponse> ListTargets(const v1::ListTargetsRequest& request);     // Safe.
  // Once: a repeat would answer TARGET_NOT_FOUND.
  absl::StatusOr<v1::DeleteTargetResponse> DeleteTarget(const v1::DeleteTargetRequest& request);
  absl::StatusOr<v1::PauseTargetResponse> PauseTarget(const v1::PauseTargetRequest& request);     // Safe.
  absl::StatusOr<v1::ResumeTargetResponse> ResumeTarget(const v1::ResumeTargetRequest& request);  // Safe.
  absl::StatusOr<v1::ListDeadDeliveriesResponse> ListDeadDeliveries(
      const v1::ListDeadDeliveriesRequest& request);  // Safe.
  absl::StatusOr<v1::RedriveDeliveriesResponse> RedriveDeliveries(
      const v1::RedriveDeliveriesRequest& request);  // Safe.

  // Safe with a request_id, else once.
  absl::StatusOr<v1::CreateMoveResponse> CreateMove(const v1::CreateMoveRequest& request);
  absl::StatusOr<v1::GetMoveResponse> GetMove(const v1::GetMoveRequest& request);           // Safe.
  absl::StatusOr<v1::ListMovesResponse> ListMoves(const v1::ListMovesRequest& request);     // Safe.
  absl::StatusOr<v1::PauseMoveResponse> PauseMove(const v1::PauseMoveRequest& request);     // Safe.
  absl::StatusOr<v1::ResumeMoveResponse> ResumeMove(const v1::ResumeMoveRequest& request);  // Safe.
  absl::StatusOr<v1::CancelMoveResponse> CancelMove(const v1::CancelMoveRequest& request);  // Safe.

  absl::StatusOr<v1::GetServerInfoResponse> GetServerInfo(const v1::GetServerInfoRequest& request);  // Safe.
  absl::StatusOr<v1::ListServersResponse> ListServers(const v1::ListServersRequest& request);        // Safe.
  // Safe.
  absl::StatusOr<v1::ListBackgroundWorkersResponse> ListBackgroundWorkers(
      const v1::ListBackgroundWorkersRequest& request);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tenure::cli

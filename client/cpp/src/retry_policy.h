// When a call may be sent again: a written verdict for every RPC, which failures are worth it, and how long to wait.
// The one place where this is decided: the synchronous client, the pool's claims, its settles and the keeper all ask
// here. Layer: client. Thread-safe: constants and pure functions (Jitter uses a generator per thread).
#pragma once

#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "tenure/client.h"
#include "tenure/v1/job_service.pb.h"
#include "tenure/v1/limit_service.pb.h"
#include "tenure/v1/move_service.pb.h"
#include "tenure/v1/schedule_service.pb.h"
#include "tenure/v1/worker_service.pb.h"

namespace tenure::client::internal {

enum class Verdict {
  kIdempotent,   // Repeating it after a lost reply changes nothing.
  kOnlyWithKey,  // Safe if the request carries its key: idempotency_key for every job, or request_id.
  kNever,        // A repeat would answer something else than the call whose reply was lost.
};

struct RpcVerdict {
  std::string_view method;  // "tenure.v1.JobService.Enqueue".
  Verdict verdict;
  std::string_view why;
};

// Every RPC of the API. A test walks the service descriptors and fails for an RPC that is missing here.
std::span<const RpcVerdict> AllVerdicts();
// The verdict on `method`; kNever for one that is not listed.
Verdict VerdictOf(std::string_view method);

// Whether the request carries the key that makes it safe to repeat. Only the kOnlyWithKey calls have one.
template <typename Request>
bool HasKey(const Request&) {
  return false;
}
bool HasKey(const v1::EnqueueRequest& request);
inline bool HasKey(const v1::RetryRequest& request) { return !request.request_id().empty(); }
inline bool HasKey(const v1::ClaimRequest& request) { return !request.request_id().empty(); }
inline bool HasKey(const v1::CreateMoveRequest& request) { return !request.request_id().empty(); }
inline bool HasKey(const v1::TriggerScheduleRequest& request) { return !request.request_id().empty(); }

// True for a failure that may go away by itself: UNAVAILABLE, ABORTED, a shed call, DEADLINE_EXCEEDED of one attempt,
// and RESOURCE_EXHAUSTED that carries a RetryInfo or a reason of the daemon (without one it is the transport: a message
// too large).
bool IsTransient(const absl::Status& status);
// True if the daemon refused before it did anything, so that even a call without a key may be sent again.
bool RefusedBeforeEffect(const absl::Status& status);

// How long to wait before attempt number `failures` + 1 (failures >= 1): exponential, a random half of it taken off so
// that callers do not return in step, never less than the daemon's RetryInfo in `status`.
Duration BackoffAfter(int failures, const absl::Status& status, const RetryOptions& options);
// A random duration in [0, limit).
Duration Jitter(Duration limit);

}  // namespace tenure::client::internal

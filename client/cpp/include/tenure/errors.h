// How the client library reports errors: an absl::Status whose code says what kind of failure it was and which carries
// the daemon's machine-readable facts (google.rpc.ErrorInfo: a reason, metadata; google.rpc.RetryInfo: a delay). Public
// header of tenure::client. Thread-safe: values and pure functions only.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace tenure::client {

// The reasons a program is most likely to act on. docs/errors.md lists all of them.
namespace reason {
inline constexpr std::string_view kLeaseLost = "LEASE_LOST";  // The token is stale: somebody else may hold the job.
inline constexpr std::string_view kLeaseHeld = "LEASE_HELD";  // A named claim: see metadata holder and until.
inline constexpr std::string_view kJobCancelled = "JOB_CANCELLED";      // The job was cancelled.
inline constexpr std::string_view kAlreadySettled = "ALREADY_SETTLED";  // The job, or this token, ended in another way.
inline constexpr std::string_view kJobNotFound = "JOB_NOT_FOUND";       // Never existed, or its history has expired.
inline constexpr std::string_view kNotReady = "NOT_READY";              // A named claim of a job that is not ready.
inline constexpr std::string_view kNotRetryable = "NOT_RETRYABLE";  // Retry of a job that is ready, leased or blocked.
inline constexpr std::string_view kQueueNotFound = "QUEUE_NOT_FOUND";
inline constexpr std::string_view kQueueExists = "QUEUE_EXISTS";
inline constexpr std::string_view kScheduleNotFound = "SCHEDULE_NOT_FOUND";
inline constexpr std::string_view kScheduleExists = "SCHEDULE_EXISTS";
inline constexpr std::string_view kTargetNotFound = "TARGET_NOT_FOUND";
inline constexpr std::string_view kTargetExists = "TARGET_EXISTS";
inline constexpr std::string_view kTooManyTargets = "TOO_MANY_TARGETS";
inline constexpr std::string_view kInvalidField = "INVALID_FIELD";  // Metadata field and rule.
inline constexpr std::string_view kPayloadTooLarge = "PAYLOAD_TOO_LARGE";
inline constexpr std::string_view kIdempotencyConflict = "IDEMPOTENCY_CONFLICT";
inline constexpr std::string_view kDependencyRefused = "DEPENDENCY_REFUSED";  // Of an item of a call with depends_on.
inline constexpr std::string_view kUniqueConflict = "UNIQUE_CONFLICT";        // "job_id" names the holder of the key.
inline constexpr std::string_view kOverloaded = "OVERLOADED";   // Shed; nothing was done. Retry after RetryDelay.
inline constexpr std::string_view kQueueFull = "QUEUE_FULL";    // The queue holds its max_depth of jobs; the same.
inline constexpr std::string_view kTenantFull = "TENANT_FULL";  // The tenant has its max_tenant_depth in it; the same.
inline constexpr std::string_view kReplyFull = "REPLY_FULL";    // A named job does not fit in the answer.
inline constexpr std::string_view kTooManyPolls = "TOO_MANY_POLLS";
inline constexpr std::string_view kDraining = "DRAINING";  // This replica shuts down: another one serves.
inline constexpr std::string_view kDatabaseUnavailable = "DATABASE_UNAVAILABLE";
}  // namespace reason

// The reason that `status` carries, for example "LEASE_LOST"; empty if it carries none (transport errors, OK).
std::string ErrorReason(const absl::Status& status);

// True if `status` is an error with this reason.
bool HasReason(const absl::Status& status, std::string_view reason);

// Further facts: "field" of an invalid request, "holder" and "until" of LEASE_HELD. Empty if there are none.
std::map<std::string, std::string> ErrorMetadata(const absl::Status& status);

// How long the daemon asks callers to wait before they try again; absent if it did not say.
std::optional<std::chrono::nanoseconds> RetryDelay(const absl::Status& status);

// True for an answer about a lease or a job that no repetition can change: LEASE_LOST, JOB_CANCELLED, ALREADY_SETTLED,
// JOB_NOT_FOUND.
bool IsFinalAnswer(const absl::Status& status);

// An error with a reason, as the daemon would send it; for fakes in tests and for middleware.
absl::Status MakeStatus(absl::StatusCode code, std::string_view reason, std::string_view message,
                        const std::map<std::string, std::string>& metadata = {},
                        std::optional<std::chrono::nanoseconds> retry_delay = std::nullopt);

}  // namespace tenure::client

// The one place where what PostgreSQL reports becomes an absl::Status. Layer: store/postgres. Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "server/store/shards.h"
#include "server/store/types.h"

namespace tenure::store::postgres {

// `sqlstate` empty: the connection broke. The SQLSTATE stays with the status (SqlStateOf).
absl::Status FromSqlState(std::string_view sqlstate, std::string_view message);
inline constexpr std::string_view kLockNotAvailable = "55P03";
std::string SqlStateOf(const absl::Status& status);

// Serialization failure or deadlock: run the transaction again.
bool IsRetryable(const absl::Status& status);
// The session must not be used again (it broke, or the server is now read-only or shutting down).
bool IsConnectionFailure(const absl::Status& status);

// FAILED_PRECONDITION / TERM_OVER.
absl::Status TermOver(const Fence& fence);
absl::Status ShardTermOver(const ShardFence& fence);

}  // namespace tenure::store::postgres

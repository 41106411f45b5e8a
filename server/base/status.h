// Status helpers of every layer: an absl::Status that carries the machine-readable facts a caller acts on (ErrorInfo
// reason, metadata, retry delay) next to the sentence a person reads. Thread-safe: values only.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tenure {

// Facts for a program; travels as google.rpc.ErrorInfo with domain "tenure", and as ItemError for one item of a batch.
struct ErrorDetails {
  std::string reason;  // UPPER_SNAKE_CASE, one of the table in docs/errors.md.
  std::map<std::string, std::string> metadata;
  std::optional<absl::Duration> retry_after;  // Becomes google.rpc.RetryInfo.
};

// An error with its facts. `message` says what is wrong and what to do about it.
absl::Status MakeError(absl::StatusCode code, std::string_view reason, std::string_view message,
                       std::map<std::string, std::string> metadata = {},
                       std::optional<absl::Duration> retry_after = std::nullopt);

// INVALID_ARGUMENT with reason INVALID_FIELD (or `reason`) and metadata field: names the field and the rule that it
// breaks.
absl::Status InvalidField(std::string_view field, std::string_view rule, std::string_view reason = "INVALID_FIELD");

// The facts of `status`; reason is empty if it carries none.
ErrorDetails DetailsOf(const absl::Status& status);

}  // namespace tenure

// Leave the function with an error status; the value otherwise.
#define TENURE_RETURN_IF_ERROR(expr)                                                       \
  do {                                                                                     \
    if (absl::Status tenure_status_ = (expr); !tenure_status_.ok()) return tenure_status_; \
  } while (false)

#define TENURE_CONCAT_INNER_(a, b) a##b
#define TENURE_CONCAT_(a, b) TENURE_CONCAT_INNER_(a, b)
#define TENURE_ASSIGN_OR_RETURN(lhs, expr) TENURE_ASSIGN_OR_RETURN_(TENURE_CONCAT_(tenure_or_, __LINE__), lhs, expr)
#define TENURE_ASSIGN_OR_RETURN_(tmp, lhs, expr) \
  auto tmp = (expr);                             \
  if (!tmp.ok()) return tmp.status();            \
  lhs = std::move(tmp).value()

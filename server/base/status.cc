#include "server/base/status.h"

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace tenure {
namespace {

// Payload of the status: "key\0value\0..." with the reason and the delay under reserved keys; never leaves the process.
constexpr char kPayloadUrl[] = "tenure/error-details";
constexpr char kReasonKey[] = "\x01reason";
constexpr char kRetryKey[] = "\x01retry_ns";

void Append(std::string& out, std::string_view key, std::string_view value) {
  out.append(key);
  out.push_back('\0');
  out.append(value);
  out.push_back('\0');
}

}  // namespace

absl::Status MakeError(absl::StatusCode code, std::string_view reason, std::string_view message,
                       std::map<std::string, std::string> metadata, std::optional<absl::Duration> retry_after) {
  absl::Status status(code, absl::string_view(message.data(), message.size()));
  std::string packed;
  Append(packed, kReasonKey, reason);
  if (retry_after) Append(packed, kRetryKey, std::to_string(absl::ToInt64Nanoseconds(*retry_after)));
  for (const auto& [key, value] : metadata) Append(packed, key, value);
  status.SetPayload(kPayloadUrl, absl::Cord(packed));
  return status;
}

absl::Status InvalidField(std::string_view field, std::string_view rule, std::string_view reason) {
  std::string message(field);
  message.append(": ").append(rule);
  return MakeError(absl::StatusCode::kInvalidArgument, reason, message,
                   {{"field", std::string(field)}, {"rule", std::string(rule)}});
}

ErrorDetails DetailsOf(const absl::Status& status) {
  ErrorDetails details;
  auto payload = status.GetPayload(kPayloadUrl);
  if (!payload) return details;
  const std::string packed(*payload);
  std::vector<std::string> parts = absl::StrSplit(packed, '\0');
  for (size_t i = 0; i + 1 < parts.size(); i += 2) {
    if (parts[i] == kReasonKey) {
      details.reason = parts[i + 1];
    } else if (parts[i] == kRetryKey) {
      int64_t ns = 0;
      if (absl::SimpleAtoi(parts[i + 1], &ns)) details.retry_after = absl::Nanoseconds(ns);
    } else {
      details.metadata[parts[i]] = parts[i + 1];
    }
  }
  return details;
}

}  // namespace tenure

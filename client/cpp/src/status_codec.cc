// See status_codec.h and tenure/errors.h.
#include "status_codec.h"

#include "absl/strings/cord.h"
#include "google/rpc/error_details.pb.h"
#include "tenure/errors.h"

namespace tenure::client {
namespace {

constexpr char kErrorInfoUrl[] = "type.googleapis.com/google.rpc.ErrorInfo";
constexpr char kRetryInfoUrl[] = "type.googleapis.com/google.rpc.RetryInfo";
constexpr char kDomain[] = "tenure";

absl::string_view View(std::string_view text) { return absl::string_view(text.data(), text.size()); }

bool ReadErrorInfo(const absl::Status& status, google::rpc::ErrorInfo* info) {
  const auto payload = status.GetPayload(kErrorInfoUrl);
  return payload && info->ParseFromString(std::string(*payload));
}

}  // namespace

std::string ErrorReason(const absl::Status& status) {
  google::rpc::ErrorInfo info;
  return ReadErrorInfo(status, &info) ? info.reason() : std::string();
}

bool HasReason(const absl::Status& status, std::string_view reason) {
  google::rpc::ErrorInfo info;
  return !status.ok() && ReadErrorInfo(status, &info) && info.reason() == reason;
}

std::map<std::string, std::string> ErrorMetadata(const absl::Status& status) {
  google::rpc::ErrorInfo info;
  if (!ReadErrorInfo(status, &info)) return {};
  return {info.metadata().begin(), info.metadata().end()};
}

std::optional<std::chrono::nanoseconds> RetryDelay(const absl::Status& status) {
  const auto payload = status.GetPayload(kRetryInfoUrl);
  google::rpc::RetryInfo info;
  if (!payload || !info.ParseFromString(std::string(*payload)) || !info.has_retry_delay()) return std::nullopt;
  return std::chrono::seconds(info.retry_delay().seconds()) + std::chrono::nanoseconds(info.retry_delay().nanos());
}

bool IsFinalAnswer(const absl::Status& status) {
  if (status.ok()) return false;
  const std::string found = ErrorReason(status);
  return found == reason::kLeaseLost || found == reason::kJobCancelled || found == reason::kAlreadySettled ||
         found == reason::kJobNotFound;
}

absl::Status MakeStatus(absl::StatusCode code, std::string_view reason, std::string_view message,
                        const std::map<std::string, std::string>& metadata,
                        std::optional<std::chrono::nanoseconds> retry_delay) {
  absl::Status status(code, View(message));
  if (!reason.empty()) {
    google::rpc::ErrorInfo info;
    info.set_reason(std::string(reason));
    info.set_domain(kDomain);
    for (const auto& [key, value] : metadata) (*info.mutable_metadata())[key] = value;
    status.SetPayload(kErrorInfoUrl, absl::Cord(info.SerializeAsString()));
  }
  if (retry_delay) {
    google::rpc::RetryInfo info;
    info.mutable_retry_delay()->set_seconds(std::chrono::duration_cast<std::chrono::seconds>(*retry_delay).count());
    info.mutable_retry_delay()->set_nanos(static_cast<int>((*retry_delay % std::chrono::seconds(1)).count()));
    status.SetPayload(kRetryInfoUrl, absl::Cord(info.SerializeAsString()));
  }
  return status;
}

namespace internal {

absl::Status FromTrailer(int code, const std::string& message, const std::string& details) {
  if (code == 0) return absl::OkStatus();
  absl::Status status(static_cast<absl::StatusCode>(code), message);
  google::rpc::Status trailer;
  if (details.empty() || !trailer.ParseFromString(details)) return status;
  for (const auto& detail : trailer.details()) status.SetPayload(detail.type_url(), absl::Cord(detail.value()));
  return status;
}

absl::Status FromItemError(const v1::ItemError& error) {
  const auto code = error.code() == 0 ? absl::StatusCode::kUnknown : static_cast<absl::StatusCode>(error.code());
  std::optional<std::chrono::nanoseconds> retry_delay;
  if (error.has_retry_after()) {
    retry_delay =
        std::chrono::seconds(error.retry_after().seconds()) + std::chrono::nanoseconds(error.retry_after().nanos());
  }
  return MakeStatus(code, error.reason(), error.message(), {error.metadata().begin(), error.metadata().end()},
                    retry_delay);
}

}  // namespace internal
}  // namespace tenure::client

#include "server/rpc/status_mapping.h"

#include <grpcpp/support/status.h>

#include <string>

#include "server/base/status.h"
#include "server/rpc/text.h"

namespace tenure::rpc {
namespace {

// A message may quote what a caller sent; whatever it holds must not make the answer impossible to encode.
constexpr size_t kMessageLimit = 4096;  // The whole trailer has to fit a client's default metadata limit of 8 KiB.

std::string Message(const absl::Status& status) {
  return SanitizeText(std::string(status.message().data(), status.message().size()), kMessageLimit);
}

std::string Reason(const ErrorDetails& details, absl::StatusCode code) {
  return details.reason.empty() ? std::string(CodeName(code)) : details.reason;
}

int Number(absl::StatusCode code) { return static_cast<int>(code); }

void SetDuration(absl::Duration duration, google::protobuf::Duration* out) {
  const int64_t ns = absl::ToInt64Nanoseconds(duration);
  out->set_seconds(ns / 1'000'000'000);
  out->set_nanos(static_cast<int32_t>(ns % 1'000'000'000));
}

}  // namespace

std::string_view CodeName(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return "OK";
    case absl::StatusCode::kCancelled:
      return "CANCELLED";
    case absl::StatusCode::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case absl::StatusCode::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case absl::StatusCode::kNotFound:
      return "NOT_FOUND";
    case absl::StatusCode::kAlreadyExists:
      return "ALREADY_EXISTS";
    case absl::StatusCode::kPermissionDenied:
      return "PERMISSION_DENIED";
    case absl::StatusCode::kResourceExhausted:
      return "RESOURCE_EXHAUSTED";
    case absl::StatusCode::kFailedPrecondition:
      return "FAILED_PRECONDITION";
    case absl::StatusCode::kAborted:
      return "ABORTED";
    case absl::StatusCode::kOutOfRange:
      return "OUT_OF_RANGE";
    case absl::StatusCode::kUnimplemented:
      return "UNIMPLEMENTED";
    case absl::StatusCode::kInternal:
      return "INTERNAL";
    case absl::StatusCode::kUnavailable:
      return "UNAVAILABLE";
    case absl::StatusCode::kDataLoss:
      return "DATA_LOSS";
    case absl::StatusCode::kUnauthenticated:
      return "UNAUTHENTICATED";
    default:
      return "UNKNOWN";
  }
}

google::rpc::Status ToRpcStatus(const absl::Status& status) {
  google::rpc::Status out;
  if (status.ok()) return out;
  const ErrorDetails details = DetailsOf(status);
  out.set_code(Number(status.code()));
  out.set_message(Message(status));

  google::rpc::ErrorInfo info;
  info.set_reason(Reason(details, status.code()));
  info.set_domain(kErrorDomain);
  for (const auto& [key, value] : details.metadata) {
    (*info.mutable_metadata())[key] = SanitizeText(value, kMessageLimit);
  }
  out.add_details()->PackFrom(info);

  auto field = details.metadata.find("field");
  if (status.code() == absl::StatusCode::kInvalidArgument && field != details.metadata.end()) {
    google::rpc::BadRequest bad;
    auto* violation = bad.add_field_violations();
    violation->set_field(SanitizeText(field->second, kMessageLimit));
    auto rule = details.metadata.find("rule");
    violation->set_description(rule == details.metadata.end() ? out.message()
                                                              : SanitizeText(rule->second, kMessageLimit));
    out.add_details()->PackFrom(bad);
  }
  if (details.retry_after) {
    google::rpc::RetryInfo retry;
    SetDuration(*details.retry_after, retry.mutable_retry_delay());
    out.add_details()->PackFrom(retry);
  }
  return out;
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const google::rpc::Status rpc = ToRpcStatus(status);
  return grpc::Status(static_cast<grpc::StatusCode>(rpc.code()), rpc.message(), rpc.SerializeAsString());
}

void ToItemError(const absl::Status& status, v1::ItemError* out) {
  const ErrorDetails details = DetailsOf(status);
  out->set_code(Number(status.code()));
  out->set_reason(Reason(details, status.code()));
  out->set_message(Message(status));
  for (const auto& [key, value] : details.metadata) {
    (*out->mutable_metadata())[key] = SanitizeText(value, kMessageLimit);
  }
  if (details.retry_after) SetDuration(*details.retry_after, out->mutable_retry_after());
}

}  // namespace tenure::rpc

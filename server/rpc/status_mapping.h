// An absl::Status and its ErrorDetails as the wire shows them: google.rpc.Status (the trailer grpc-status-details-bin,
// Connect's details), grpc::Status, and ItemError for one item of a batch. docs/errors.md is the table of all reasons.
// Layer: rpc. Thread-safe: values only.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "google/rpc/error_details.pb.h"
#include "tenure/v1/common.pb.h"

namespace grpc {
class Status;
}

namespace tenure::rpc {

// Who the reasons belong to: ErrorInfo.domain.
inline constexpr char kErrorDomain[] = "tenure";

// "OK", "INVALID_ARGUMENT", ... by the names of google.rpc.Code.
std::string_view CodeName(absl::StatusCode code);

// Details: always an ErrorInfo (its reason is the code's name where the status carries none); a BadRequest if the
// status names a field; a RetryInfo if it names a delay.
google::rpc::Status ToRpcStatus(const absl::Status& status);

// The same with ToRpcStatus as error_details. OK becomes OK.
grpc::Status ToGrpcStatus(const absl::Status& status);

// `status` must not be OK.
void ToItemError(const absl::Status& status, v1::ItemError* out);

}  // namespace tenure::rpc

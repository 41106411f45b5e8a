// Between what travels (google.rpc.Status in a trailer, ItemError in a batch's answer) and the absl::Status that
// callers see. The facts are kept as payloads under google.rpc's own type URLs. Layer: client. Thread-safe: pure
// functions.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "tenure/v1/common.pb.h"

namespace tenure::client::internal {

// `details` is the serialized google.rpc.Status of the trailer; it may be empty or not parse (then only code and
// message count).
absl::Status FromTrailer(int code, const std::string& message, const std::string& details);

// One item's error. A code of 0 in an ItemError that is present becomes UNKNOWN: an error must not read as success.
absl::Status FromItemError(const v1::ItemError& error);

}  // namespace tenure::client::internal

// Page tokens (AIP-158): opaque to callers, valid only with the filters they came from.
// Layer: rpc. Thread-safe: values only.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "google/protobuf/message.h"

namespace tenure::rpc {

// Base64url of a version, a hash and `position` (the store's own token, a name). Empty stays empty: the end. `filters`
// is the request; its page_size, page_token and include_payloads may change between pages and do not count.
std::string EncodePageToken(std::string_view position, const google::protobuf::Message& filters);

// The position in `token`, which is the request's page_token; empty for the first page. INVALID_ARGUMENT naming
// page_token if it is none of ours or came with other filters.
absl::StatusOr<std::string> DecodePageToken(std::string_view token, const google::protobuf::Message& filters);

}  // namespace tenure::rpc

// Where a JSON text departs from the shape of a message: the parser refuses a request with words of its own, which
// often name no more than the element around the wrong value. After a refusal the text is looked through once more,
// next to the message's description, for the first value of a wrong type. Layer: rpc. Thread-safe: values only.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "google/protobuf/descriptor.h"

namespace tenure::rpc {

// INVALID_ARGUMENT / INVALID_FIELD that names the full path of the first field, in the order of the .proto, that is
// unknown or of a wrong type ("jobs[0].payload.text: expected a string, not a number"). nullopt if `json` is no JSON
// object, or none of its fields is wrong in this way.
std::optional<absl::Status> WrongShape(const std::string& json, const google::protobuf::Descriptor& type);

}  // namespace tenure::rpc

// What a request goes through when it does not parse because of its text. Protobuf refuses a whole message for one
// invalid byte in one `string` field, and gRPC then answers UNIMPLEMENTED without a word about the field; but a worker
// whose error text holds stray bytes must be able to report its failure, one bad item of a batch must not refuse the
// others, and a caller is to hear which field is wrong. So the bytes are repaired, and parsed again: each byte that is
// not part of valid UTF-8 becomes a NUL. Rules for names and keys refuse NUL, in words and for that item alone; the
// texts of errors have it replaced (SanitizeText). The normal path pays nothing. Layer: rpc. Thread-safe: values only.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "google/protobuf/descriptor.h"

namespace tenure::rpc {

// `wire`, a message of `type`, with its string fields repaired. nullopt if it is not a well-formed message at all.
// Payload.text has no rule against NUL: a payload whose text is invalid gets kTextWasInvalid (field_rules.h) as its
// content type and is refused by that.
std::optional<std::string> RepairWire(std::string_view wire, const google::protobuf::Descriptor& type);

// The same for a request's JSON: invalid bytes and \u escapes of lone surrogates become \u0000.
std::string RepairJson(std::string_view json);

}  // namespace tenure::rpc

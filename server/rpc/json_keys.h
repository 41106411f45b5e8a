// Keys that a JSON object has twice. Parsers keep the last value and say nothing, so that the caller does not learn
// that what it meant first was dropped. Layer: rpc. Thread-safe: values only.
#pragma once

#include <optional>
#include <string>

namespace tenure::rpc {

// The path of the first key that stands twice in its object, such as "jobs[0].queue"; nullopt if none does, as far as
// the text is JSON.
std::optional<std::string> RepeatedKey(const std::string& json);

}  // namespace tenure::rpc

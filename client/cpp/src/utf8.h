// Text on its way to the daemon. A protobuf string must be UTF-8: one bad byte would make the daemon refuse the whole
// message, and with it everybody else's items. Layer: client. Thread-safe: pure functions.
#pragma once

#include <string>
#include <string_view>

namespace tenure::client::internal {

// True if `text` is well-formed UTF-8 (no surrogates, no overlong forms) without NUL.
bool IsCleanUtf8(std::string_view text);

// `text` with everything that is not clean replaced by U+FFFD, cut to at most `max_bytes` at a character's edge.
std::string CleanUtf8(std::string_view text, size_t max_bytes);

}  // namespace tenure::client::internal

// Text that crosses the wire: PostgreSQL's text and protobuf's strings both hold UTF-8 only, and PostgreSQL no NUL.
// Layer: rpc. Thread-safe: values only.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tenure::rpc {

// Length of the valid UTF-8 prefix of `text` (no overlong forms, no surrogates, nothing above U+10FFFF).
size_t ValidUtf8Prefix(std::string_view text);
inline bool IsUtf8(std::string_view text) { return ValidUtf8Prefix(text) == text.size(); }
// Valid UTF-8 without NUL: what PostgreSQL can store as text.
bool IsStorable(std::string_view text);

// Always storable: each NUL and each byte that is not part of valid UTF-8 becomes U+FFFD; cut to at most `max_bytes` at
// a character's boundary. Idempotent.
std::string SanitizeText(std::string text, size_t max_bytes);

}  // namespace tenure::rpc

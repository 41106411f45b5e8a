// See utf8.h.
#include "utf8.h"

#include <cstdint>

namespace tenure::client::internal {
namespace {

// Length of the well-formed character at `at`, or 0. NUL counts as ill-formed: PostgreSQL's text cannot hold it.
size_t CharacterAt(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) -> uint8_t { return i < text.size() ? static_cast<uint8_t>(text[i]) : 0; };
  const auto tail = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const uint8_t first = byte(at);
  if (first == 0) return 0;
  if (first < 0x80) return 1;
  if (first < 0xC2) return 0;
  if (first < 0xE0) return tail(at + 1) ? 2 : 0;
  const uint8_t second = byte(at + 1);
  if (first < 0xF0) {
    if (!tail(at + 1) || !tail(at + 2)) return 0;
    if (first == 0xE0 && second < 0xA0) return 0;
    if (first == 0xED && second > 0x9F) return 0;
    return 3;
  }
  if (first > 0xF4 || !tail(at + 1) || !tail(at + 2) || !tail(at + 3)) return 0;
  if (first == 0xF0 && second < 0x90) return 0;
  if (first == 0xF4 && second > 0x8F) return 0;
  return 4;
}

}  // namespace

bool IsCleanUtf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = CharacterAt(text, at);
    if (length == 0) return false;
    at += length;
  }
  return true;
}

std::string CleanUtf8(std::string_view text, size_t max_bytes) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  std::string clean;
  clean.reserve(text.size() < max_bytes ? text.size() : max_bytes);
  for (size_t at = 0; at < text.size();) {
    const size_t length = CharacterAt(text, at);
    const std::string_view piece = length == 0 ? kReplacement : text.substr(at, length);
    if (clean.size() + piece.size() > max_bytes) break;
    clean.append(piece);
    at += length == 0 ? 1 : length;
  }
  return clean;
}

}  // namespace tenure::client::internal

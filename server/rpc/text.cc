#include "server/rpc/text.h"

#include <cstdint>
#include <cstring>

namespace tenure::rpc {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// Length of the well-formed sequence at the head of `text`, 0 if there is none (Unicode 15, table 3-7).
size_t SequenceLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const auto in = [&](size_t i, uint8_t low, uint8_t high) {
    return i < text.size() && byte(i) >= low && byte(i) <= high;
  };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return in(1, 0x80, 0xBF) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const uint8_t low = first == 0xE0 ? 0xA0 : 0x80;
    const uint8_t high = first == 0xED ? 0x9F : 0xBF;
    return in(1, low, high) && in(2, 0x80, 0xBF) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const uint8_t low = first == 0xF0 ? 0x90 : 0x80;
    const uint8_t high = first == 0xF4 ? 0x8F : 0xBF;
    return in(1, low, high) && in(2, 0x80, 0xBF) && in(3, 0x80, 0xBF) ? 4 : 0;
  }
  return 0;
}

}  // namespace

size_t ValidUtf8Prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    // Eight ASCII bytes at a time: payloads are mostly that.
    uint64_t word = 0;
    if (text.size() - at >= sizeof word) {
      std::memcpy(&word, text.data() + at, sizeof word);
      if ((word & 0x8080808080808080u) == 0) {
        at += sizeof word;
        continue;
      }
    }
    const size_t length = SequenceLength(text.substr(at));
    if (length == 0) break;
    at += length;
  }
  return at;
}

bool IsStorable(std::string_view text) { return text.find('\0') == std::string_view::npos && IsUtf8(text); }

std::string SanitizeText(std::string text, size_t max_bytes) {
  if (text.size() <= max_bytes && IsStorable(text)) return text;
  std::string out;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t length = rest[0] == '\0' ? 0 : SequenceLength(rest);
    const std::string_view piece = length == 0 ? kReplacement : rest.substr(0, length);
    if (out.size() + piece.size() > max_bytes) break;
    out.append(piece);
    rest.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

}  // namespace tenure::rpc

// Parsing and formatting of single values. Layer: client/cli. Thread-safe: values only.
#include "client/cli/values.h"

#include <array>
#include <cctype>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace tenure::cli {
namespace {

constexpr char kDurationRule[] =
    "is not a duration: write numbers with a unit (ms, s, m, h or d), such as 500ms, 2s, 1m30s or 1h";

struct Unit {
  const char* name;
  absl::Duration length;
};

// Largest first.
const std::array<Unit, 5>& Units() {
  static const std::array<Unit, 5> units = {{{"d", absl::Hours(24)},
                                             {"h", absl::Hours(1)},
                                             {"m", absl::Minutes(1)},
                                             {"s", absl::Seconds(1)},
                                             {"ms", absl::Milliseconds(1)}}};
  return units;
}

struct StateEntry {
  v1::JobState state;
  const char* name;
};

constexpr StateEntry kStates[] = {
    {v1::JOB_STATE_SCHEDULED, "scheduled"}, {v1::JOB_STATE_BLOCKED, "blocked"},
    {v1::JOB_STATE_READY, "ready"},         {v1::JOB_STATE_LEASED, "leased"},
    {v1::JOB_STATE_SUSPENDED, "suspended"}, {v1::JOB_STATE_COMPLETED, "completed"},
    {v1::JOB_STATE_DISCARDED, "discarded"}, {v1::JOB_STATE_CANCELLED, "cancelled"},
    {v1::JOB_STATE_EXPIRED, "expired"},
};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

absl::StatusOr<absl::Duration> ParseDuration(const std::string& text) {
  const auto bad = [&text] { return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" ", kDurationRule)); };
  absl::Duration total;
  size_t at = 0;
  while (at < text.size()) {
    const size_t number = at;
    while (at < text.size() && (IsDigit(text[at]) || text[at] == '.')) ++at;
    double count = 0;
    if (at == number || !absl::SimpleAtod(text.substr(number, at - number), &count)) return bad();
    const size_t unit = at;
    while (at < text.size() && std::isalpha(static_cast<unsigned char>(text[at])) != 0) ++at;
    const std::string name = text.substr(unit, at - unit);
    bool known = false;
    for (const Unit& candidate : Units()) {
      if (name != candidate.name) continue;
      total += candidate.length * count;
      known = true;
    }
    if (!known) return bad();
  }
  if (text.empty() || total == absl::InfiniteDuration()) return bad();
  return total;
}

absl::StatusOr<absl::Time> ParseTime(const std::string& text, absl::Time now) {
  if (text == "now") return now;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    absl::StatusOr<absl::Duration> offset = ParseDuration(text.substr(1));
    if (offset.ok()) return text[0] == '-' ? now - *offset : now + *offset;
  }
  absl::Time time;
  std::string ignored;
  if (absl::ParseTime(absl::RFC3339_full, text, &time, &ignored)) return time;
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", text,
      "\" is not a time: write RFC 3339 such as 2026-11-29T12:00:00Z, \"now\", or an offset such as -1h or +30m"));
}

absl::StatusOr<std::pair<std::string, std::string>> ParsePair(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is not a pair: write key=value"));
  }
  return std::make_pair(text.substr(0, equals), text.substr(equals + 1));
}

absl::StatusOr<v1::JobState> ParseState(const std::string& text) {
  const std::string wanted = absl::AsciiStrToLower(text);
  std::string names;
  for (const StateEntry& entry : kStates) {
    if (wanted == entry.name) return entry.state;
    absl::StrAppend(&names, names.empty() ? "" : ", ", entry.name);
  }
  return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is not a state: write one of ", names));
}

std::string StateName(v1::JobState state) {
  for (const StateEntry& entry : kStates) {
    if (entry.state == state) return entry.name;
  }
  return absl::StrCat("state ", static_cast<int>(state));
}

bool IsFinal(v1::JobState state) {
  return state == v1::JOB_STATE_COMPLETED || state == v1::JOB_STATE_DISCARDED || state == v1::JOB_STATE_CANCELLED ||
         state == v1::JOB_STATE_EXPIRED;
}

std::string ShowDuration(absl::Duration duration) {
  if (duration < absl::ZeroDuration()) return absl::StrCat("-", ShowDuration(-duration));
  if (duration == absl::InfiniteDuration()) return "forever";
  // Below a second only milliseconds matter; above it they are noise.
  if (duration < absl::Seconds(1)) {
    const int64_t millis = absl::ToInt64Milliseconds(duration);
    return millis == 0 ? "0s" : absl::StrCat(millis, "ms");
  }
  std::string text;
  int64_t seconds = absl::ToInt64Seconds(duration);
  int shown = 0;
  for (const Unit& unit : Units()) {
    const int64_t length = absl::ToInt64Seconds(unit.length);
    if (length == 0) break;
    const int64_t count = seconds / length;
    seconds %= length;
    if (count > 0) absl::StrAppend(&text, count, unit.name);
    // The second unit directly follows the first: "1d" rather than "1d5s".
    if ((count > 0 || shown > 0) && ++shown == 2) break;
  }
  return text;
}

std::string ShowWhen(absl::Time time, absl::Time now) {
  const absl::Duration ahead = time - now;
  if (ahead >= absl::Milliseconds(1)) return absl::StrCat("in ", ShowDuration(ahead));
  if (ahead <= -absl::Seconds(1)) return absl::StrCat(ShowDuration(-ahead), " ago");
  return "now";
}

std::string ShowTime(absl::Time time) { return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone()); }

std::string OneLine(const std::string& text, size_t limit) {
  std::string line;
  line.reserve(std::min(text.size(), limit));
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    line.push_back(byte < 0x20 || byte == 0x7f ? ' ' : c);
  }
  if (line.size() <= limit) return line;
  size_t end = limit > 3 ? limit - 3 : 0;
  while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xc0) == 0x80) --end;
  return absl::StrCat(line.substr(0, end), "...");
}

bool IsValidUtf8(const std::string& bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    const auto lead = static_cast<unsigned char>(bytes[at]);
    const size_t length = lead < 0x80 ? 1 : lead >> 5 == 0x6 ? 2 : lead >> 4 == 0xe ? 3 : lead >> 3 == 0x1e ? 4 : 0;
    if (length == 0 || at + length > bytes.size()) return false;
    uint32_t code = length == 1 ? lead : lead & (0xffu >> (length + 1));
    for (size_t i = 1; i < length; ++i) {
      const auto next = static_cast<unsigned char>(bytes[at + i]);
      if ((next & 0xc0) != 0x80) return false;
      code = code << 6 | (next & 0x3fu);
    }
    // Longer than needed, a surrogate, or beyond Unicode.
    constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
    if (code < kSmallest[length] || (code >= 0xd800 && code <= 0xdfff) || code > 0x10ffff) return false;
    at += length;
  }
  return true;
}

std::string JobOfToken(const std::string& token) { return token.substr(0, token.find('.')); }

google::protobuf::Duration ToProto(absl::Duration duration) {
  google::protobuf::Duration proto;
  absl::Duration rest;
  proto.set_seconds(absl::IDivDuration(duration, absl::Seconds(1), &rest));
  proto.set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
  return proto;
}

google::protobuf::Timestamp ToProto(absl::Time time) {
  google::protobuf::Timestamp proto;
  proto.set_seconds(absl::ToUnixSeconds(time));
  proto.set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(time - absl::FromUnixSeconds(proto.seconds()))));
  return proto;
}

absl::Duration FromProto(const google::protobuf::Duration& duration) {
  return absl::Seconds(duration.seconds()) + absl::Nanoseconds(duration.nanos());
}

absl::Time FromProto(const google::protobuf::Timestamp& timestamp) {
  return absl::FromUnixSeconds(timestamp.seconds()) + absl::Nanoseconds(timestamp.nanos());
}

}  // namespace tenure::cli

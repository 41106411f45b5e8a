#include "server/rpc/field_rules.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/rpc/text.h"

namespace tenure::rpc {
namespace {

constexpr size_t kMaxName = 128;
constexpr int kMaxHeaders = 64;
constexpr size_t kMaxHeaderKey = 255;
constexpr size_t kMaxHeaderBytes = 16 << 10;
constexpr size_t kMaxContentType = 255;

constexpr bool IsQueueNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
         c == ':' || c == '/' || c == '-';
}

constexpr bool IsVisibleAscii(char c) { return c > 0x20 && c < 0x7F; }

// "30 days", "12h", "1ms": as the proto states its limits.
std::string Words(absl::Duration d) {
  if (d == kTenYears) return "10 years";
  if (d > absl::Hours(24) && d % absl::Hours(24) == absl::ZeroDuration()) {
    return absl::StrCat(absl::ToInt64Hours(d) / 24, " days");
  }
  std::string text = absl::FormatDuration(d);
  if (absl::EndsWith(text, "m0s")) text.resize(text.size() - 2);
  if (absl::EndsWith(text, "h0m")) text.resize(text.size() - 2);
  return text;
}

}  // namespace

std::string Field::ToString() const {
  std::string path = parent_ == nullptr ? "" : absl::StrCat(parent_->ToString(), ".");
  path.append(name_);
  if (index_ >= 0) absl::StrAppend(&path, "[", index_, "]");
  return path;
}

absl::Status Invalid(const Field& field, std::string_view rule) { return InvalidField(field.ToString(), rule); }

absl::Status CheckQueueName(const Field& field, std::string_view name) {
  if (name.empty()) return Invalid(field, "is required");
  if (name.size() > kMaxName)
    return Invalid(field, absl::StrCat("is ", name.size(), " bytes long; at most 128 are allowed"));
  if (!std::all_of(name.begin(), name.end(), IsQueueNameByte)) {
    return Invalid(field, "may hold only letters, digits and . _ : / - (ASCII)");
  }
  return absl::OkStatus();
}

absl::Status CheckKind(const Field& field, std::string_view kind) {
  if (kind.empty()) return Invalid(field, "is required");
  if (kind.size() > kMaxName)
    return Invalid(field, absl::StrCat("is ", kind.size(), " bytes long; at most 128 are allowed"));
  if (!std::all_of(kind.begin(), kind.end(), IsVisibleAscii))
    return Invalid(field, "must be printable ASCII without blanks");
  return absl::OkStatus();
}

absl::Status CheckText(const Field& field, std::string_view text, size_t min, size_t max) {
  if (text.empty() && min > 0) return Invalid(field, "is required");
  if (text.size() > max) {
    return Invalid(field, absl::StrCat("is ", text.size(), " bytes long; at most ", max, " are allowed"));
  }
  if (!IsStorable(text)) return Invalid(field, "must be valid UTF-8 without NUL");
  return absl::OkStatus();
}

absl::Status CheckRange(const Field& field, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return Invalid(field, absl::StrCat("is ", value, "; it must be from ", min, " to ", max));
}

absl::Status CheckCount(const Field& field, int count, int min, int max, std::string_view what) {
  if (count >= min && count <= max) return absl::OkStatus();
  const absl::string_view noun(what.data(), what.size());
  return Invalid(field, min == 0 ? absl::StrCat("holds ", count, " ", noun, "; at most ", max, " are allowed")
                                 : absl::StrCat("holds ", count, " ", noun, "; it must hold from ", min, " to ", max));
}

absl::StatusOr<int32_t> NumberOr(const Field& field, int64_t value, int32_t fallback, int32_t min, int32_t max) {
  if (value == 0) return fallback;
  TENURE_RETURN_IF_ERROR(CheckRange(field, value, min, max));
  return static_cast<int32_t>(value);
}

absl::Status CheckHeaders(const Field& field, const google::protobuf::Map<std::string, std::string>& headers) {
  TENURE_RETURN_IF_ERROR(CheckCount(field, static_cast<int>(headers.size()), 0, kMaxHeaders, "entries"));
  size_t bytes = 0;
  for (const auto& [key, value] : headers) {
    if (key.empty() || key.size() > kMaxHeaderKey) {
      return Invalid(field, absl::StrCat("has a key of ", key.size(), " bytes; keys have from 1 to 255"));
    }
    if (!IsStorable(key)) return Invalid(field, "has a key that is not valid UTF-8 without NUL");
    if (!IsStorable(value)) {
      return Invalid(field, absl::StrCat("has a value that is not valid UTF-8 without NUL, under the key '", key, "'"));
    }
    bytes += key.size() + value.size();
  }
  if (bytes > kMaxHeaderBytes) {
    return Invalid(field,
                   absl::StrCat("keys and values are ", bytes, " bytes long together; at most 16384 are allowed"));
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::Duration> DurationIn(const Field& field, const google::protobuf::Duration& value,
                                          absl::Duration min, absl::Duration max) {
  constexpr int64_t kMaxSeconds = 315'576'000'000;  // What google.protobuf.Duration allows: 10,000 years.
  const bool well_formed = value.nanos() > -1'000'000'000 && value.nanos() < 1'000'000'000 &&
                           value.seconds() >= -kMaxSeconds && value.seconds() <= kMaxSeconds &&
                           !(value.seconds() > 0 && value.nanos() < 0) && !(value.seconds() < 0 && value.nanos() > 0);
  if (!well_formed)
    return Invalid(field, "is not a well-formed duration (nanos within a second, with the sign of seconds)");
  const absl::Duration d = absl::Seconds(value.seconds()) + absl::Nanoseconds(value.nanos());
  if (d < min || d > max) {
    return Invalid(field,
                   absl::StrCat("is ", absl::FormatDuration(d), "; it must be from ", Words(min), " to ", Words(max)));
  }
  return d;
}

absl::StatusOr<absl::Time> TimeFrom(const Field& field, const google::protobuf::Timestamp& value) {
  constexpr int64_t kFirst = -62'135'596'800;  // 0001-01-01T00:00:00Z
  constexpr int64_t kLast = 253'402'300'799;   // 9999-12-31T23:59:59Z
  if (value.seconds() < kFirst || value.seconds() > kLast || value.nanos() < 0 || value.nanos() >= 1'000'000'000) {
    return Invalid(field, "is not a well-formed timestamp (years 1 to 9999, nanos from 0 to 999999999)");
  }
  return absl::FromUnixSeconds(value.seconds()) + absl::Nanoseconds(value.nanos());
}

absl::StatusOr<store::Payload> PayloadFrom(const Field& field, v1::Payload& payload, const Limits& limits) {
  if (payload.content_type() == kTextWasInvalid) {
    return Invalid(field / "text", "is not valid UTF-8; send bytes in data");
  }
  const bool text = payload.content_case() == v1::Payload::kText;
  const size_t size = text ? payload.text().size() : payload.data().size();
  if (size > static_cast<size_t>(limits.max_payload_bytes)) {
    return InvalidField(field.ToString(),
                        absl::StrCat("is ", size, " bytes long; at most ", limits.max_payload_bytes,
                                     " are allowed. Store large content elsewhere and pass a reference"),
                        "PAYLOAD_TOO_LARGE");
  }
  TENURE_RETURN_IF_ERROR(CheckText(field / "content_type", payload.content_type(), 0, kMaxContentType));
  store::Payload out;
  if (size > 0) out.data = std::move(text ? *payload.mutable_text() : *payload.mutable_data());
  out.content_type = std::move(*payload.mutable_content_type());
  if (out.content_type.empty()) out.content_type = text ? "application/json" : "application/octet-stream";
  return out;
}

bool IsTextual(std::string_view content_type) {
  std::string_view type = content_type.substr(0, content_type.find(';'));
  const std::string bare =
      absl::AsciiStrToLower(absl::StripAsciiWhitespace(absl::string_view(type.data(), type.size())));
  return absl::StartsWith(bare, "text/") || bare == "application/json" || absl::EndsWith(bare, "+json");
}

absl::StatusOr<store::Backoff> BackoffFrom(const Field& field, const v1::Backoff& backoff) {
  store::Backoff out;
  absl::Duration initial = absl::Microseconds(out.initial_us);
  if (backoff.has_initial()) {
    TENURE_ASSIGN_OR_RETURN(initial,
                            DurationIn(field / "initial", backoff.initial(), absl::Milliseconds(1), absl::Hours(24)));
    out.initial_us = absl::ToInt64Microseconds(initial);
  }
  if (backoff.multiplier() != 0) {
    // Also refuses NaN.
    if (!(backoff.multiplier() >= 1 && backoff.multiplier() <= 100)) {
      return Invalid(field / "multiplier", absl::StrCat("is ", backoff.multiplier(), "; it must be from 1 to 100"));
    }
    out.multiplier = backoff.multiplier();
  }
  if (backoff.has_max()) {
    TENURE_ASSIGN_OR_RETURN(absl::Duration max,
                            DurationIn(field / "max", backoff.max(), initial, absl::Hours(24 * 30)));
    out.max_us = absl::ToInt64Microseconds(max);
  } else {
    out.max_us = std::max(out.max_us, out.initial_us);
  }
  return out;
}

}  // namespace tenure::rpc

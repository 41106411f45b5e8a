// The rules that single fields obey, with the path of the field in the error ("jobs[3].kind: ..."). The limits are
// those that the proto's comments state. conversion.h puts them together into whole requests. Layer: rpc. Thread-safe:
// values only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/map.h"
#include "google/protobuf/timestamp.pb.h"
#include "server/store/types.h"
#include "tenure/v1/job.pb.h"

namespace tenure::rpc {

// What the daemon's flags decide.
struct Limits {
  int64_t max_payload_bytes = 1 << 20;  // --max-payload-bytes: a payload, a result.
};

// The path of a field, put into words only when an error needs it: a batch checks 10,000 items without building a
// string. Holds a pointer to its parent, which must outlive it.
class Field {
 public:
  constexpr explicit Field(std::string_view name) : name_(name) {}
  constexpr Field(std::string_view name, int index) : name_(name), index_(index) {}
  constexpr Field operator/(std::string_view name) const { return Field(this, name, -1); }
  constexpr Field Item(std::string_view name, int index) const { return Field(this, name, index); }
  std::string ToString() const;                   // "jobs[3].kind"
  constexpr int index() const { return index_; }  // Its place in a list; -1: it is none.

 private:
  constexpr Field(const Field* parent, std::string_view name, int index)
      : parent_(parent), name_(name), index_(index) {}
  const Field* parent_ = nullptr;
  std::string_view name_;
  int index_ = -1;
};

// 10 years, as the proto means them.
inline constexpr absl::Duration kTenYears = absl::Hours(24 * 3650);

// INVALID_ARGUMENT / INVALID_FIELD.
absl::Status Invalid(const Field& field, std::string_view rule);

// 1 to 128 bytes of [A-Za-z0-9._:/-].
absl::Status CheckQueueName(const Field& field, std::string_view name);
// 1 to 128 bytes of printable ASCII without blanks.
absl::Status CheckKind(const Field& field, std::string_view kind);
// `min` to `max` bytes of valid UTF-8 without NUL.
absl::Status CheckText(const Field& field, std::string_view text, size_t min, size_t max);
absl::Status CheckRange(const Field& field, int64_t value, int64_t min, int64_t max);
// `what`: "jobs".
absl::Status CheckCount(const Field& field, int count, int min, int max, std::string_view what);
// 0 means `fallback`.
absl::StatusOr<int32_t> NumberOr(const Field& field, int64_t value, int32_t fallback, int32_t min, int32_t max);
absl::Status CheckHeaders(const Field& field, const google::protobuf::Map<std::string, std::string>& headers);

// A well-formed duration within [min, max], both named in the error.
absl::StatusOr<absl::Duration> DurationIn(const Field& field, const google::protobuf::Duration& value,
                                          absl::Duration min, absl::Duration max);
absl::StatusOr<absl::Time> TimeFrom(const Field& field, const google::protobuf::Timestamp& value);

// Moves the bytes out of `payload`. Over the limit: reason PAYLOAD_TOO_LARGE with the limit and the size.
absl::StatusOr<store::Payload> PayloadFrom(const Field& field, v1::Payload& payload, const Limits& limits);
// True if text may stand for the bytes: text/*, application/json, +json; parameters are ignored.
bool IsTextual(std::string_view content_type);

absl::StatusOr<store::Backoff> BackoffFrom(const Field& field, const v1::Backoff& backoff);

// What stands in Payload.content_type when Payload.text was not valid UTF-8 on the wire (see wire_repair.h).
inline constexpr std::string_view kTextWasInvalid("\0payload.text", 13);

}  // namespace tenure::rpc

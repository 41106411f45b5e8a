// How the command line reads and writes single values: durations, times, states, key=value pairs. Layer: client/cli.
// Thread-safe: values only.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"
#include "tenure/v1/job.pb.h"

namespace tenure::cli {

// "500ms", "2s", "1m30s", "1.5h", "7d": numbers with a unit (ms, s, m, h, d) and no sign. INVALID_ARGUMENT states the
// rule.
absl::StatusOr<absl::Duration> ParseDuration(const std::string& text);

// RFC 3339 ("2026-11-29T12:00:00Z"), "now", or a signed duration from `now` ("-1h", "+30m"). INVALID_ARGUMENT states
// the rule.
absl::StatusOr<absl::Time> ParseTime(const std::string& text, absl::Time now);

// "key=value"; the value may be empty and may hold further '='. INVALID_ARGUMENT states the rule.
absl::StatusOr<std::pair<std::string, std::string>> ParsePair(const std::string& text);

// "ready", "leased" ... in any case. INVALID_ARGUMENT lists the names.
absl::StatusOr<v1::JobState> ParseState(const std::string& text);

// "ready"; a state that this version does not know is shown by its number.
std::string StateName(v1::JobState state);

// True for the four states that never change.
bool IsFinal(v1::JobState state);

// At most two units, for people: "250ms", "12s", "3m20s", "2h", "1d4h". Negative durations get a "-".
std::string ShowDuration(absl::Duration duration);

// "in 12s", "3m ago", "now".
std::string ShowWhen(absl::Time time, absl::Time now);

// RFC 3339 in UTC with milliseconds.
std::string ShowTime(absl::Time time);

// One line of at most `limit` bytes that cannot steer a terminal: control characters become blanks, a cut ends in
// "...", and never inside a UTF-8 character.
std::string OneLine(const std::string& text, size_t limit);

bool IsValidUtf8(const std::string& bytes);

// The job that a lease token belongs to, for messages only: whatever stands before the first '.'. Never the secret
// part.
std::string JobOfToken(const std::string& token);

google::protobuf::Duration ToProto(absl::Duration duration);
google::protobuf::Timestamp ToProto(absl::Time time);
absl::Duration FromProto(const google::protobuf::Duration& duration);
absl::Time FromProto(const google::protobuf::Timestamp& timestamp);

}  // namespace tenure::cli

// JSON lines as jobs. Layer: client/cli. Not thread-safe.
#include "client/cli/enqueue_lines.h"

#include <istream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/util/json_util.h"

namespace tenure::cli {
namespace {

constexpr int kJobsPerBatch = 1000;
constexpr size_t kBytesPerBatch = 3 * 1024 * 1024;

// The parser's words, such as "(payload.text): invalid value 5 for type TYPE_STRING" or "(delay): invalid value Field
// 'delay', Illegal duration format; ... for type type.googleapis.com/google.protobuf.Duration", with the field once and
// the type in words.
std::string Readable(std::string message) {
  constexpr std::pair<const char*, const char*> kTypes[] = {
      {"TYPE_STRING", "a string"},      {"TYPE_BYTES", "a string of base64"}, {"TYPE_INT32", "a whole number"},
      {"TYPE_INT64", "a whole number"}, {"TYPE_DOUBLE", "a number"},          {"TYPE_BOOL", "true or false"}};
  if (const size_t end = message.find(')'); absl::StartsWith(message, "(") && end != std::string::npos) {
    message = message.substr(1, end - 1) + message.substr(end + 1);
  }
  if (const size_t type = message.rfind(" for type "); type != std::string::npos) {
    std::string expected;
    for (const auto& [name, words] : kTypes) {
      if (absl::EndsWith(message, name)) expected = absl::StrCat("; expected ", words);
    }
    message = message.substr(0, type) + expected;
  }
  constexpr char kAgain[] = "invalid value Field '";
  if (const size_t again = message.find(kAgain); again != std::string::npos) {
    const size_t end = message.find("', ", again);
    if (end != std::string::npos) message.erase(again, end + 3 - again);
  }
  return message;
}

}  // namespace

absl::StatusOr<v1::JobSpec> ParseLine(const std::string& text, int64_t line, const v1::JobSpec& defaults) {
  v1::JobSpec parsed;
  const auto status = google::protobuf::util::JsonStringToMessage(text, &parsed);
  if (!status.ok()) {
    std::string message = Readable(std::string(status.message()));
    if (absl::StrContains(message, "payload")) {
      absl::StrAppend(&message, "; a payload is written {\"text\": \"...\"} or {\"data\": \"base64\"}");
    }
    return absl::InvalidArgumentError(message);
  }
  if (parsed.depends_on().items_size() > 0) {
    return absl::InvalidArgumentError("dependsOn.items is not for lines, which are sent in batches; use jobIds");
  }
  v1::JobSpec spec = defaults;
  // Of two ways to say the same thing the line's counts.
  if (parsed.has_due_time() || parsed.has_delay()) {
    spec.clear_due_time();
    spec.clear_delay();
  }
  if (parsed.has_expire_time() || parsed.has_ttl()) {
    spec.clear_expire_time();
    spec.clear_ttl();
  }
  // A line's own bytes do not inherit the media type of the default ones.
  if (parsed.payload().content_case() != v1::Payload::CONTENT_NOT_SET) spec.clear_payload();
  if (parsed.concurrency_keys_size() > 0) spec.clear_concurrency_keys();
  if (parsed.has_unique()) spec.clear_unique();
  if (parsed.has_depends_on()) spec.clear_depends_on();
  if (!spec.idempotency_key().empty()) spec.set_idempotency_key(absl::StrCat(spec.idempotency_key(), "-", line));
  spec.MergeFrom(parsed);
  if (spec.queue().empty()) return absl::InvalidArgumentError("no \"queue\", and no --queue to stand in for it");
  if (spec.kind().empty()) return absl::InvalidArgumentError("no \"kind\", and no --kind to stand in for it");
  return spec;
}

bool LineReader::Next() {
  std::string text;
  while (std::getline(in_, text)) {
    ++line_;
    if (absl::StripAsciiWhitespace(text).empty()) continue;
    spec_ = ParseLine(text, line_, defaults_);
    return true;
  }
  return false;
}

bool EnqueueBatch::HasRoomFor(const v1::JobSpec& spec) const {
  if (request.jobs().empty()) return true;
  return request.jobs_size() < kJobsPerBatch && bytes + spec.ByteSizeLong() <= kBytesPerBatch;
}

void EnqueueBatch::Add(const v1::JobSpec& spec, int64_t line) {
  bytes += spec.ByteSizeLong();
  *request.add_jobs() = spec;
  lines.push_back(line);
}

}  // namespace tenure::cli

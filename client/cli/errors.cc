// Decoding and printing of errors. Layer: client/cli. Not thread-safe.
#include "client/cli/errors.h"

#include <ostream>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/cli/values.h"
#include "google/rpc/error_details.pb.h"

namespace tenure::cli {
namespace {

constexpr char kDetailsUrl[] = "type.googleapis.com/google.rpc.Status";
constexpr char kUnreachableUrl[] = "tenure.cli/unreachable";

// What to do about the daemon's reasons (docs/errors.md); {id} stands for the job.
struct Step {
  const char* reason;
  const char* text;
};

constexpr Step kSteps[] = {
    {kUnreachable,
     "start a daemon with: tenured serve   (in the source tree: make run; or name another one: --server HOST:PORT, "
     "TENURE_SERVER)"},
    {"LEASE_LOST", "see who holds the job now: tenurectl job get {id}"},
    {"LEASE_HELD", "wait until the lease ends, or take the job away from its holder: tenurectl job cancel {id}"},
    {"JOB_CANCELLED", "stop working on the job; there is nothing left to settle"},
    {"ALREADY_SETTLED", "its outcome stands: tenurectl job get {id}   to run it once more: tenurectl job retry {id}"},
    {"NOT_READY", "see when it is due: tenurectl job get {id}   or make it due now: tenurectl job retry {id}"},
    {"NOT_RETRYABLE", "it will run anyhow; see where it stands: tenurectl job get {id}"},
    {"JOB_NOT_FOUND",
     "ids are listed by: tenurectl job list --all   (the history of ended jobs is kept for some days only)"},
    {"QUEUE_NOT_FOUND", "see the queues: tenurectl queue list   or make it: tenurectl queue create NAME"},
    {"LIMIT_NOT_FOUND", "see the limits of a queue: tenurectl limit list QUEUE"},
    {"QUEUE_EXISTS", "change its settings: tenurectl queue update NAME"},
    {"PAYLOAD_TOO_LARGE", "store large content elsewhere and pass a reference to it"},
    {"DEPENDENCY_REFUSED", "a job of the same call that this one waits for was refused: correct that one"},
    {"UNIQUE_CONFLICT", "another job has the unique key: look at it, or use another --on-conflict"},
    {"IDEMPOTENCY_CONFLICT", "use another idempotency key for a different job"},
    {"REQUEST_REPLAYED", "use a new request id for a new claim"},
    {"KEY_BUSY", "try again with the same key"},
    {"QUEUE_BUSY", "try again, or make the queue beforehand: tenurectl queue create NAME"},
    {"JOB_LOCKED", "an application's open transaction holds the job; try again"},
    {"DRAINING", "this replica is shutting down: try again, or name another one with --server"},
    {"DATABASE_UNAVAILABLE", "look at the daemon's database: tenurectl doctor   and try again"},
    {"DATABASE_TIMEOUT", "try again; if it goes on: tenurectl doctor"},
    {"DATABASE_CONFLICT", "try again"},
    {"UNIMPLEMENTED", "the server is no Tenure daemon, or one of another version: tenurectl version, tenurectl doctor"},
    {"UNKNOWN_METHOD", "the daemon is of another version: tenurectl version, tenurectl doctor"},
};

std::string CodeName(absl::StatusCode code) {
  std::string name = absl::StatusCodeToString(code);
  return name.empty() ? absl::StrCat("CODE_", static_cast<int>(code)) : name;
}

// A fact as it is printed: times also say how far away they are.
std::string FormatFact(const std::string& value) {
  absl::Time time;
  std::string ignored;
  if (value.find('T') != std::string::npos && absl::ParseTime(absl::RFC3339_full, value, &time, &ignored)) {
    return absl::StrCat(value, " (", ShowWhen(time, absl::Now()), ")");
  }
  return OneLine(value, 1000);
}

// Whether the lines before have said this fact: the subject has named the job or the queue, and the message of a
// field's error is the field and the rule.
bool Said(const std::string& key, const std::string& value, const ErrorFacts& facts, const std::string& subject,
          const std::string& job_id) {
  if (!subject.empty() && ((key == "job_id" && value == job_id) || subject == absl::StrCat(key, ": ", value)))
    return true;
  if (key == "field") return absl::StartsWith(facts.message, absl::StrCat(value, ": "));
  return key == "rule" && absl::EndsWith(facts.message, absl::StrCat(": ", value));
}

}  // namespace

void AttachDetails(absl::Status& status, const std::string& serialized_status) {
  if (!serialized_status.empty()) status.SetPayload(kDetailsUrl, absl::Cord(serialized_status));
}

void MarkUnreachable(absl::Status& status) { status.SetPayload(kUnreachableUrl, absl::Cord("1")); }

ErrorFacts FactsOf(const absl::Status& status) {
  ErrorFacts facts;
  facts.code = status.code();
  facts.message = std::string(status.message());
  if (status.GetPayload(kUnreachableUrl).has_value()) {
    facts.reason = kUnreachable;
    return facts;
  }
  if (const auto details = status.GetPayload(kDetailsUrl); details.has_value()) {
    google::rpc::Status proto;
    google::rpc::ErrorInfo info;
    google::rpc::RetryInfo retry;
    if (proto.ParseFromString(std::string(*details))) {
      for (const google::protobuf::Any& any : proto.details()) {
        if (any.UnpackTo(&info)) {
          facts.reason = info.reason();
          facts.metadata = {info.metadata().begin(), info.metadata().end()};
        } else if (any.UnpackTo(&retry)) {
          facts.retry_after = FromProto(retry.retry_delay());
        }
      }
    }
  }
  if (facts.reason.empty()) facts.reason = CodeName(facts.code);
  return facts;
}

ErrorFacts FactsOf(const v1::ItemError& error) {
  ErrorFacts facts;
  facts.code = static_cast<absl::StatusCode>(error.code());
  facts.reason = error.reason().empty() ? CodeName(facts.code) : error.reason();
  facts.message = error.message();
  facts.metadata = {error.metadata().begin(), error.metadata().end()};
  return facts;
}

std::string NextStep(const ErrorFacts& facts, const std::string& job_id) {
  for (const Step& step : kSteps) {
    if (facts.reason == step.reason) {
      return absl::StrReplaceAll(step.text, {{"{id}", job_id.empty() ? "ID" : job_id}});
    }
  }
  if (facts.retry_after.has_value()) return absl::StrCat("try again in ", ShowDuration(*facts.retry_after));
  if (facts.code == absl::StatusCode::kResourceExhausted) return "try again in a moment";
  return "";
}

void ErrorPrinter::Print(const ErrorFacts& facts, const std::string& subject, const std::string& job_id) {
  err_ << "error: " << facts.reason << ": " << OneLine(facts.message, 4000) << '\n';
  if (!subject.empty()) err_ << "  " << subject << '\n';
  for (const auto& [key, value] : facts.metadata) {
    if (!Said(key, value, facts, subject, job_id)) err_ << "  " << key << ": " << FormatFact(value) << '\n';
  }
  const std::string step = NextStep(facts, job_id);
  // Steps that name a job differ for each of them; only the kind of step counts as said.
  if (!step.empty() && printed_steps_.insert(facts.reason).second) err_ << "  next: " << step << '\n';
}

}  // namespace tenure::cli

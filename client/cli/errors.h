// A refusal as a person reads it: `error: REASON: message`, the facts that came with it, and what to do next. The same
// for a whole call's status and for one item of a batch. Layer: client/cli. Not thread-safe: one thread prints.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tenure/v1/common.pb.h"

namespace tenure::cli {

// Where the daemon cannot be reached; no daemon sends it.
inline constexpr char kUnreachable[] = "UNREACHABLE";

// Facts of an error, from google.rpc details or from an ItemError.
struct ErrorFacts {
  absl::StatusCode code = absl::StatusCode::kUnknown;
  std::string reason;  // Never empty: the code's name where the daemon gave none.
  std::string message;
  std::map<std::string, std::string> metadata;
  std::optional<absl::Duration> retry_after;
};

// `google.rpc.Status` bytes, as the grpc-status-details-bin trailer holds them, kept with an absl::Status for FactsOf.
void AttachDetails(absl::Status& status, const std::string& serialized_status);
// Marks a status that did not come from a daemon: nobody answered.
void MarkUnreachable(absl::Status& status);

ErrorFacts FactsOf(const absl::Status& status);
ErrorFacts FactsOf(const v1::ItemError& error);

// What the user can do about `reason`, as a whole sentence or a command; empty if there is nothing to say.
std::string NextStep(const ErrorFacts& facts, const std::string& job_id);

// Prints errors; a next step that was already printed is not repeated, so that a batch of refusals stays readable.
class ErrorPrinter {
 public:
  explicit ErrorPrinter(std::ostream& err) : err_(err) {}

  // `subject` says what was refused, for example "job: 7-20786-1"; may be empty. `job_id` fills the next step.
  void Print(const ErrorFacts& facts, const std::string& subject = "", const std::string& job_id = "");

 private:
  std::ostream& err_;
  std::set<std::string> printed_steps_;
};

}  // namespace tenure::cli

// Reporting of errors, the same for each command. Layer: client/cli. Not thread-safe.
#include "client/cli/context.h"

#include <ostream>

namespace tenure::cli {

int Context::Report(const absl::Status& status, const std::string& subject, const std::string& job_id) {
  const ErrorFacts facts = FactsOf(status);
  error_printer_.Print(facts, subject, job_id);
  return facts.reason == kUnreachable ? kExitUnreachable : kExitRefused;
}

int Context::ReportItem(const v1::ItemError& error, const std::string& subject, const std::string& job_id) {
  error_printer_.Print(FactsOf(error), subject, job_id);
  return kExitRefused;
}

int Context::ReportUsage(const std::string& message) {
  err() << "error: USAGE: " << message << '\n';
  return kExitUsage;
}

}  // namespace tenure::cli

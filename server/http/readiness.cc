// See readiness.h. Layer: http.
#include "server/http/readiness.h"

#include <algorithm>

namespace tenure::http {
namespace {

// Reasons are one a line, whatever the database's message looks like.
std::string OneLine(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

void AddLine(std::string& text, const std::string& line) {
  if (!text.empty()) text.push_back('\n');
  text.append(line);
}

void Record(Readiness::Result& result, const std::string& name, bool warning, const std::string& failure,
            const std::string& note = "") {
  if (failure.empty()) {
    AddLine(result.verbose, "ok " + name + (note.empty() ? "" : ": " + note));
    return;
  }
  AddLine(result.verbose, (warning ? "warning " : "failed ") + name + ": " + failure);
  if (warning) return;
  result.ready = false;
  AddLine(result.summary, name + ": " + failure);
}

}  // namespace

Readiness::Readiness(std::function<engine::Health()> health, std::vector<ReadinessCheck> checks,
                     absl::Duration max_event_lag)
    : health_(std::move(health)), checks_(std::move(checks)), max_event_lag_(max_event_lag) {}

Readiness::Result Readiness::Evaluate() const {
  Result result;
  const engine::Health health = health_();
  std::string database;
  if (!health.database_ok && health.schema_error.empty()) {
    database = health.database_error.empty() ? "not reached yet" : "unreachable: " + OneLine(health.database_error);
  }
  Record(result, "database", false, database);
  Record(result, "schema", false, OneLine(health.schema_error));
  Record(result, "draining", false, health.draining ? "the daemon is shutting down" : "");
  std::string events;
  if (health.event_lag == absl::InfiniteDuration()) {
    events = "not read yet";
  } else if (health.event_lag > max_event_lag_) {
    events = "last read " + absl::FormatDuration(absl::Trunc(health.event_lag, absl::Milliseconds(100))) +
             " ago, allowed are " + absl::FormatDuration(max_event_lag_);
  }
  Record(result, "events", false, events);
  for (const ReadinessCheck& check : checks_) {
    const absl::Status status = check.check();
    std::string failure;
    if (!status.ok()) {
      failure = OneLine(std::string(status.message()));
      if (failure.empty()) failure = absl::StatusCodeToString(status.code());
    }
    Record(result, check.name, check.warning, failure, check.note ? OneLine(check.note()) : "");
  }
  if (result.ready) result.summary = "ok";
  return result;
}

}  // namespace tenure::http

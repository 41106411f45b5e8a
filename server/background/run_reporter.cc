// RunReporter: see the header. Layer: background.
#include "server/background/run_reporter.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "server/base/logging.h"

namespace tenure::background {
namespace {

constexpr Clock::Duration kWriteInterval = std::chrono::seconds(1);
constexpr Clock::Duration kRepeatInterval = std::chrono::minutes(1);  // An error that lasts is logged so often.

}  // namespace

RunReporter::RunReporter(std::string worker, Write write, Clock& clock, Metrics& metrics)
    : worker_(std::move(worker)),
      write_(std::move(write)),
      clock_(clock),
      ok_(metrics.background_runs.Add({{"worker", worker_}, {"outcome", "ok"}})),
      errors_(metrics.background_runs.Add({{"worker", worker_}, {"outcome", "error"}})),
      restarts_(metrics.background_restarts.Add({{"worker", worker_}})) {
  gathered_.runs = 0;
}

void RunReporter::OnRound(const absl::Status& status) {
  (status.ok() ? ok_ : errors_).Increment();
  const Clock::TimePoint now = clock_.Now();
  bool due = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++state_.runs;
    ++gathered_.runs;
    gathered_.ok = status.ok();
    if (status.ok()) {
      if (!logged_error_.empty()) LogInfo("background worker works again", {{"worker", worker_}});
      logged_error_.clear();
      state_.last_error.clear();
    } else {
      const std::string error = status.ToString(absl::StatusToStringMode::kWithNoExtraData);
      state_.last_error = error;
      gathered_.error = error;
      if (error != logged_error_ || now - logged_at_ >= kRepeatInterval) {
        LogWarn("background worker failed", {{"worker", worker_}, {"error", error}});
        logged_error_ = error;
        logged_at_ = now;
      }
    }
    due = !written_at_ || now - *written_at_ >= kWriteInterval;
  }
  if (due) Flush();
}

void RunReporter::OnRestart(const std::string& why) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++state_.restarts;
    state_.last_error = why;
  }
  restarts_.Increment();
  Flush();
  Tell({.ok = false, .error = why, .restarted = true, .runs = 0});
}

void RunReporter::Flush() {
  store::Store::RunReport report;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (gathered_.runs == 0) return;
    report = std::exchange(gathered_, store::Store::RunReport{.ok = true, .error = "", .restarted = false, .runs = 0});
    written_at_ = clock_.Now();
  }
  Tell(report);
}

void RunReporter::Tell(const store::Store::RunReport& report) {
  const absl::Status status = write_(report);
  if (status.ok()) return;
  // Most likely the database is away, which the worker's own error says already; the log has what the report said.
  LogDebug("background report not written", {{"worker", worker_}, {"error", std::string(status.message())}});
}

RunReporter::State RunReporter::state() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return state_;
}

}  // namespace tenure::background

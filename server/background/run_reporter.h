// Where one worker's rounds are counted, logged and shown: metrics at once, the log when something changes, the
// database at most once a second (a promoter makes thousands of rounds a second). Layer: background. Thread-safe.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "server/base/clock.h"
#include "server/base/metrics.h"
#include "server/store/store.h"

namespace tenure::background {

class RunReporter {
 public:
  using Write = std::function<absl::Status(const store::Store::RunReport&)>;

  // `write` puts a report into the database.
  RunReporter(std::string worker, Write write, Clock& clock, Metrics& metrics);

  // A round is over. May write to the database, and so block.
  void OnRound(const absl::Status& status);
  // The run ended by itself; `why` says how. The worker will be started anew. May block.
  void OnRestart(const std::string& why);
  // Writes what OnRound has gathered. May block.
  void Flush();

  struct State {
    std::string last_error;  // Of this process; empty after a round that went well.
    int64_t runs = 0;
    int64_t restarts = 0;
  };
  State state() const;

 private:
  void Tell(const store::Store::RunReport& report);

  const std::string worker_;
  const Write write_;
  Clock& clock_;
  prometheus::Counter& ok_;
  prometheus::Counter& errors_;
  prometheus::Counter& restarts_;

  mutable std::mutex mutex_;
  State state_;                                 // From here on guarded by mutex_.
  store::Store::RunReport gathered_;            // Rounds that are not in the database yet.
  std::optional<Clock::TimePoint> written_at_;  // When the last report was written.
  std::string logged_error_;                    // The error that the log shows as lasting.
  Clock::TimePoint logged_at_;
};

}  // namespace tenure::background

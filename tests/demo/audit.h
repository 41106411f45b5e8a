// Waits until every accepted job has ended, then asks the daemon which ones it lists as COMPLETED. Layer: tests. A
// thread of its own; the results are read after `done`.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"

namespace tenure::demo {

class Audit {
 public:
  // `records` are the workers' files: what they acknowledged needs no question to the daemon. `done` is called once, on
  // the thread.
  Audit(std::string server, std::vector<std::string> accepted, std::vector<std::string> records,
        std::function<void()> done);
  // Stops and joins.
  ~Audit() = default;

  // CANCELLED if it was stopped, else what kept it from finding out.
  const absl::Status& status() const { return status_; }
  const std::vector<std::string>& accepted() const { return accepted_; }
  const std::vector<std::string>& completed() const { return completed_; }
  // NowNanos() when the last outcome was known.
  int64_t last_outcome_at() const { return last_outcome_at_; }

 private:
  absl::Status Run(std::stop_token stop);

  const std::string server_;
  const std::vector<std::string> accepted_;
  const std::vector<std::string> records_;
  absl::Status status_;
  std::vector<std::string> completed_;
  int64_t last_outcome_at_ = 0;
  std::jthread thread_;
};

}  // namespace tenure::demo

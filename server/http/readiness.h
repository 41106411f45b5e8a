// Whether this replica should get traffic, and why not. Layer: http. Thread-safe as far as the functions that it is
// given are.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/engine/engine.h"

namespace tenure::http {

// A fact that the daemon adds to the engine's own. `check` must not block: it runs on the HTTP port's threads.
struct ReadinessCheck {
  std::string name;      // One word, as in "migrations".
  bool warning = false;  // A failure is shown with ?verbose but does not make the replica unready.
  std::function<absl::Status()> check;
  std::function<std::string()> note = {};  // What ?verbose says of it when all is well; may be empty.
};

class Readiness {
 public:
  struct Result {
    bool ready = true;
    std::string summary;  // "ok", or the reasons, one a line. No newline at the end.
    std::string
        verbose;  // All checks, one a line: "ok NAME", "ok NAME: note", "failed NAME: why" or "warning NAME: why".
  };

  // `health` is the engine's. A replica that has not read events for longer than `max_event_lag` does not see the
  // others' jobs.
  Readiness(std::function<engine::Health()> health, std::vector<ReadinessCheck> checks,
            absl::Duration max_event_lag = absl::Seconds(5));

  Result Evaluate() const;

 private:
  std::function<engine::Health()> health_;
  std::vector<ReadinessCheck> checks_;
  absl::Duration max_event_lag_;
};

}  // namespace tenure::http

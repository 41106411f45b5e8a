// The loop of the workers that serve targets one after the other: looks at the targets of a purpose again and again,
// and keeps one that fails from holding up the others. Layer: background/targets. Not thread-safe: one thread runs it.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "server/background/targets/access.h"
#include "server/background/targets/http_client.h"
#include "server/background/worker.h"
#include "server/base/metrics.h"
#include "server/store/targets.h"

namespace tenure::background::targets {

class TargetLoop {
 public:
  // Does what is to be done for one target now; called at each look. An error is noted for its owner, and the target is
  // left alone for 1 s, then twice as long each time, at most a minute; TERM_OVER and what concerns the database ends
  // the round. Answers the age of the oldest thing that waits there (zero: nothing).
  using Serve = std::function<absl::StatusOr<absl::Duration>(const store::TargetWork& work, RunContext& context)>;

  // `http` of the workers that need none stays unused.
  TargetLoop(store::Store& store, Clock& clock, Metrics& metrics, const Access& access, store::TargetPurpose purpose,
             absl::Duration poll_interval, Serve serve);
  ~TargetLoop();

  absl::StatusOr<absl::Duration> Round(RunContext& context);
  HttpClient& http() { return http_; }
  const Access& access() const { return access_; }

 private:
  struct Trouble {
    int64_t version = 0;  // Of the target: changed, it is tried at once.
    absl::Duration pause;
    Clock::TimePoint until;
    std::string noted;
    Clock::TimePoint since;
  };

  store::Store& store_;
  Clock& clock_;
  Metrics& metrics_;
  const Access access_;
  const store::TargetPurpose purpose_;
  const absl::Duration poll_interval_;
  const Serve serve_;
  HttpClient http_;
  std::map<int64_t, Trouble> trouble_;
};

}  // namespace tenure::background::targets

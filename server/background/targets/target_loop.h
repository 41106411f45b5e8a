// The loop of the workers that serve targets: looks at the targets of a purpose again and again, and serves each of
// them apart, on one of a few threads, so that one that hangs or fails holds up no other. Layer: background/targets.
// One thread runs it; it calls the worker's own code on several at once, but never twice at once for one target.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <stop_token>
#include <string>

#include "server/background/targets/access.h"
#include "server/background/targets/http_client.h"
#include "server/background/worker.h"
#include "server/base/metrics.h"
#include "server/store/targets.h"

namespace tenure::background::targets {

// One target, to be served now.
struct Visit {
  const store::TargetWork& work;
  const Access& access;
  HttpClient& http;           // Of this thread alone.
  const store::Fence& fence;  // The leader's term, which every write passes on.
  std::stop_token stop;       // Fires when the run is over, for whatever reason.

  bool stopped() const { return stop.stop_requested(); }
};

// What a worker keeps of each target from one visit to the next, until the run is over. Thread-safe; an entry belongs
// to the visit of its target.
template <typename State>
class PerTarget {
 public:
  State& Of(int64_t target) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return states_[target];  // Entries of a map stay where they are.
  }

 private:
  std::mutex mutex_;
  std::map<int64_t, State> states_;
};

class TargetLoop {
 public:
  // So many targets are served at once, and of those that were in trouble the last time half as many: however many
  // hang, there is room for the others.
  static constexpr size_t kAtOnce = 8;

  // Does what is to be done for one target now; called at each look, unless the last visit is still under way. An error
  // is noted for its owner, and the target is left alone for 1 s, then twice as long each time, at most a minute;
  // TERM_OVER and what concerns the database ends the round. Answers the age of the oldest thing that waits there
  // (zero: nothing).
  using Serve = std::function<absl::StatusOr<absl::Duration>(const Visit& visit)>;

  TargetLoop(store::Store& store, Clock& clock, Metrics& metrics, const Access& access, store::TargetPurpose purpose,
             absl::Duration poll_interval, Serve serve);
  ~TargetLoop();

  // The worker's whole run: `before` (may be null) and a look at the targets, again and again. As RunRounds; all visits
  // have ended when it returns, and are told to stop before.
  absl::Status Run(RunContext& context, const std::function<absl::Status()>& before = nullptr);

 private:
  class Crew;
  struct Ended;
  struct Trouble {
    int64_t version = 0;  // Of the target: changed, it is tried at once.
    absl::Duration pause;
    Clock::TimePoint until;
    std::string noted;
    Clock::TimePoint since;
  };

  absl::StatusOr<absl::Duration> Round(RunContext& context, Crew& crew);
  // Takes in how visits ended.
  absl::Status Judge(RunContext& context, Crew& crew);
  void ShowState(const Crew& crew);

  store::Store& store_;
  Clock& clock_;
  Metrics& metrics_;
  const Access access_;
  const store::TargetPurpose purpose_;
  const absl::Duration poll_interval_;
  const Serve serve_;
  std::map<int64_t, Trouble> trouble_;
  std::map<int64_t, absl::Duration> lag_;  // As the last visit told.
};

}  // namespace tenure::background::targets

// Sends the events of jobs to notify targets, all of them on one thread. Layer: background/targets. Not thread-safe:
// one thread runs it.
//
// Per target: a page of events is taken, its messages are sent, several at a time, and when all have their answers the
// target's place is moved behind them and what was refused gets a row, in one statement in the leader's term. If the
// term is over first, whoever leads next sends the page again; the event's id tells. A target that is in trouble trips
// its breaker: then its events wait in the outbox, and one at a time is tried. No target waits for another one.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/background/targets/access.h"
#include "server/background/targets/breaker.h"
#include "server/background/targets/http_client.h"
#include "server/background/targets/sender.h"
#include "server/background/worker.h"
#include "server/base/metrics.h"

namespace tenure::background::targets {

struct NotifierOptions {
  absl::Duration poll_interval;
  int batch = 0;      // Events taken at a time.
  int in_flight = 0;  // Requests to one target.
  absl::Duration timeout;
  int max_attempts = 0;
  absl::Duration first_retry, longest_retry;
  absl::Duration dead_retention;
};

// From one attempt to the next, after `attempts` of them: doubles, never beyond the longest; up to a tenth more, fixed
// by the event, so that what failed together does not come back together.
absl::Duration RetryAfter(const NotifierOptions& options, int attempts, std::string_view event_id);

class Notifier {
 public:
  Notifier(store::Store& store, Clock& clock, Metrics& metrics, const Access& access, NotifierOptions options);
  ~Notifier();

  // A look at the targets if it is time, what can be sent, and a wait for answers of at most a moment.
  absl::StatusOr<absl::Duration> Round(RunContext& context);
  // What is under way gets a moment to end, and is written down. For the end of a run.
  void Finish(RunContext& context);

 private:
  struct Lane;

  absl::Status Load(const store::Fence& fence);
  absl::Status Fill(const store::Fence& fence, Lane& lane);
  void SendFrom(Lane& lane);
  absl::Status Settle(const store::Fence& fence, Lane& lane);
  absl::Status Upkeep(const store::Fence& fence);
  void ShowState();

  store::Store& store_;
  Clock& clock_;
  Metrics& metrics_;
  const Access access_;
  const NotifierOptions options_;
  std::map<int64_t, std::unique_ptr<Lane>> lanes_;  // By target.
  Clock::TimePoint next_load_{}, next_upkeep_{};
  HttpClient http_;  // Last: its requests refer to the lanes.
};

}  // namespace tenure::background::targets

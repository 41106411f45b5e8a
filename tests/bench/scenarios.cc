// The explicit table of all scenarios, and how much work they do in each size. Layer: tests (benchmark).
#include "scenario.h"

namespace tenure::bench {

Sizes FullSizes() { return {}; }

Sizes QuickSizes() {
  return {
      .jobs = 20'000,
      .single_jobs = 1'000,
      .latency_seconds = 3,
      .settle_seconds = 1.5,
      .hold_seconds = 3,
      .backlog_ready = 50'000,
      .backlog_scheduled = 50'000,
      .backlog_waiting = 10'000,
      .backlog_ended = 200'000,
      .backlog_claims = 200,
      .blocked = 30'000,
      .polls = 1'000,
      .parked_seconds = 1.5,
      .leases = 2'000,
      .lease_seconds = 4.5,
      .heartbeat_seconds = 4.5,
      .queues = 200,
      .many_queues_jobs = 3'000,
      .idle_seconds = 1.5,
  };
}

Sizes SmokeSizes() {
  return {
      .jobs = 1'000,
      .single_jobs = 100,
      .latency_seconds = 0.5,
      .settle_seconds = 0.3,
      .hold_seconds = 0.6,
      .backlog_ready = 1'000,
      .backlog_scheduled = 1'000,
      .backlog_waiting = 100,
      .backlog_ended = 2'000,
      .backlog_claims = 50,
      .blocked = 2'000,
      .polls = 100,
      .parked_seconds = 0.5,
      .leases = 100,
      .lease_seconds = 1.5,
      .heartbeat_seconds = 1.5,
      .queues = 20,
      .many_queues_jobs = 200,
      .idle_seconds = 0.3,
  };
}

std::vector<Scenario> AllScenarios(const RunOptions& options) {
  return {
      EnqueueScenario(options),   DrainScenario(options),           LifecycleScenario(options), SingleScenario(options),
      LatencyScenario(options),   HeldTransactionScenario(options), BacklogScenario(options),   ParkedScenario(options),
      HeartbeatScenario(options), ManyQueuesScenario(options),      KeyedScenario(options),     GroupsScenario(options),
      FairScenario(options),      BlockedScenario(options),
  };
}

}  // namespace tenure::bench

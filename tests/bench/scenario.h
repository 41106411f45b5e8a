// What the benchmark is made of: scenarios, each with its contestants, and what one run of a contestant is given. The
// table of all scenarios is in scenarios.cc. Layer: tests (benchmark). One thread.
//
// A scenario's contestants run in turn, round by round (Tenure, raw SQL, peer, Tenure, raw SQL, peer, ...), each on a
// fresh database of the same PostgreSQL, so that what the machine does besides strikes all of them alike. Ratios are
// those of runs of the same round.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "figures.h"

namespace tenure::bench {

class PostgresServer;
class Progress;

// How much work the scenarios do.
struct Sizes {
  int64_t jobs = 200'000;  // enqueue, drain, lifecycle
  int64_t single_jobs = 20'000;
  double latency_rate = 100;  // Jobs a second.
  double latency_seconds = 20;
  double settle_seconds = 30;  // held-transaction: before it is opened, and again after it is closed.
  double hold_seconds = 600;
  int64_t backlog_ready = 1'000'000, backlog_scheduled = 1'000'000, backlog_waiting = 100'000,
          backlog_ended = 10'000'000;
  int64_t backlog_claims = 2'000;
  int64_t blocked = 300'000;
  int64_t polls = 5'000;
  double parked_seconds = 20;
  int64_t leases = 10'000;
  double lease_seconds = 30;
  double heartbeat_seconds = 60;
  int64_t queues = 5'000;
  int64_t many_queues_jobs = 50'000;
  double idle_seconds = 10;
};
Sizes FullSizes();
Sizes QuickSizes();
Sizes SmokeSizes();

struct RunOptions {
  Sizes sizes;
  std::string tenured;                    // The program.
  std::vector<std::string> tenured_args;  // After `serve` and what the benchmark needs itself.
  int slots = 8;                          // Of a worker pool.
  std::optional<int> prefetch;            // Default: the pool's own choice.
  std::string prefetch_text() const { return prefetch ? std::to_string(*prefetch) : "automatic"; }
  int pools = 1;
  int raw_connections = 1;
  double steady_rate = 0;      // held-transaction, jobs a second; 0: as many as go through.
  int64_t held_leases = 0;     // held-transaction: leases that are extended beside the load.
  bool second_replica = true;  // held-transaction: a replica joins while the transaction is open.
};

// What one run of one contestant works with.
struct RunContext {
  const RunOptions& options;
  PostgresServer& server;
  Progress& progress;

  const Sizes& sizes() const { return options.sizes; }
};

// An error ends the benchmark with a failure: something broke, or a job was lost.
using RunFunction = std::function<absl::StatusOr<Figures>(RunContext&)>;

struct Contestant {
  std::string name;
  RunFunction run;
  bool peer = false;  // Not ours: when it fails it drops out, and the benchmark goes on.
};

struct Column {
  std::string figure;
  std::string title;  // With the unit.
  int decimals = 0;
  bool spread = false;  // Show min and max as well.
};

// What DESIGN asks for: `figure` of the first contestant, divided by that of `against` unless that is empty.
struct Goal {
  std::string figure;
  std::string against;  // A contestant's name, or the beginning of it.
  bool at_least = true;
  double limit = 0;
  std::string contestant;  // Empty: the first one.
};

struct Scenario {
  std::string name;
  std::string what;  // One line.
  // The first is the headline: ratios are of it.
  std::vector<Column> columns;
  std::vector<Contestant> contestants;  // Tenure first.
  std::string peer_scenario;            // What peers know it as; empty: they do not take part.
  std::vector<Goal> goals;
  int max_runs = 1'000;                                    // For those that take long and compare with themselves.
  std::function<absl::Status(RunContext&)> clear_up = {};  // After the last run.
};

// All, in the order in which they run.
std::vector<Scenario> AllScenarios(const RunOptions& options);

// The scenarios, a family a file.
Scenario EnqueueScenario(const RunOptions& options);
Scenario DrainScenario(const RunOptions& options);
Scenario LifecycleScenario(const RunOptions& options);
Scenario SingleScenario(const RunOptions& options);
Scenario LatencyScenario(const RunOptions& options);
Scenario HeldTransactionScenario(const RunOptions& options);
Scenario BacklogScenario(const RunOptions& options);
Scenario ParkedScenario(const RunOptions& options);
Scenario HeartbeatScenario(const RunOptions& options);
Scenario ManyQueuesScenario(const RunOptions& options);
Scenario KeyedScenario(const RunOptions& options);
Scenario GroupsScenario(const RunOptions& options);
Scenario FairScenario(const RunOptions& options);
Scenario BlockedScenario(const RunOptions& options);

}  // namespace tenure::bench

// The gauges that are read from the engine at each scrape rather than kept as things happen: queues, event lag, and
// what the database says about itself and about background workers. Layer: http. Thread-safe.
#pragma once

#include <memory>

#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/metrics.h"
#include "server/engine/engine.h"
#include "server/http/queue_metrics.h"

namespace tenure::http {

class EngineMetrics {
 public:
  // The database is asked at most every `database_interval`, whoever scrapes how often. `engine` and `metrics` outlive
  // this and the engine's last callback.
  EngineMetrics(engine::Engine& engine, Clock& clock, Metrics& metrics,
                absl::Duration database_interval = absl::Seconds(15));
  ~EngineMetrics();

  // Never blocks: what it asks of the database shows in the next scrape. While the database does not answer, its gauges
  // are absent.
  void Refresh();

 private:
  struct DatabaseGauges;

  engine::Engine& engine_;
  Clock& clock_;
  Metrics& metrics_;
  const absl::Duration database_interval_;
  QueueMetrics queues_;
  std::shared_ptr<DatabaseGauges> database_;  // Shared with the engine's callbacks.
};

}  // namespace tenure::http

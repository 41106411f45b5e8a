// Every metric of the daemon, declared once: name, help, labels. Served at /metrics by http/. Labels are bounded (queue, verb,
// outcome), never ids, tenants or keys. Layer: base. Thread-safe.
//
// Adding one: docs/howto/add-a-metric.md.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"

namespace tenure {

class Metrics {
 public:
  Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  prometheus::Registry& registry() { return *registry_; }

  // Adds to a family's series, made on first use. The look-up hashes the labels: hot loops add once per batch.
  static void Add(prometheus::Family<prometheus::Counter>& family, const prometheus::Labels& labels, double n = 1) {
    if (n > 0) family.Add(labels).Increment(n);
  }

 private:
  std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();

 public:
  // Jobs.
  prometheus::Family<prometheus::Counter>& jobs_enqueued;  // queue, outcome: accepted, duplicate, refused
  prometheus::Family<prometheus::Counter>& jobs_settled;   // queue, outcome: completed, failed, discarded, released, snoozed, cancelled, expired
  prometheus::Family<prometheus::Gauge>& queue_jobs;       // queue, state
  prometheus::Family<prometheus::Gauge>& queue_oldest_ready_age;  // queue
  prometheus::Family<prometheus::Gauge>& queue_paused;     // queue
  prometheus::Family<prometheus::Histogram>& job_start_latency;  // queue: from due to claimed
  // Leases.
  prometheus::Family<prometheus::Counter>& lease_acquisitions;  // queue, outcome: acquired, held
  prometheus::Family<prometheus::Counter>& lease_losses;        // queue, reason: expired, cancelled
  prometheus::Family<prometheus::Counter>& leases_extended;     // queue
  prometheus::Family<prometheus::Counter>& stale_tokens;        // queue, verb
  prometheus::Family<prometheus::Gauge>& leases_tracked;        // leases granted by this replica that it watches
  // Claims and long polls.
  prometheus::Family<prometheus::Gauge>& polls_parked;          // kind: claim, notices, get
  prometheus::Family<prometheus::Counter>& claims;              // outcome: jobs, empty, cancelled, replayed
  prometheus::Family<prometheus::Counter>& shed;                // what: polls, enqueue, settle
  // RPCs.
  prometheus::Family<prometheus::Counter>& rpcs;                // method, code
  prometheus::Family<prometheus::Histogram>& rpc_duration;      // method
  // Database.
  prometheus::Family<prometheus::Gauge>& db_connections;        // state: idle, busy
  prometheus::Family<prometheus::Histogram>& db_statement_duration;  // statement
  prometheus::Family<prometheus::Counter>& db_errors;           // sqlstate class
  prometheus::Family<prometheus::Counter>& db_retries;          // reason: serialization, deadlock, lock_timeout, connection
  prometheus::Family<prometheus::Histogram>& batch_items;       // verb
  prometheus::Family<prometheus::Gauge>& event_lag;             // seconds since events were last read
  // Background workers.
  prometheus::Family<prometheus::Counter>& background_panics;   // worker, shard
  prometheus::Family<prometheus::Counter>& background_runs;     // worker, outcome
  prometheus::Family<prometheus::Gauge>& background_leader;     // worker: 1 if this replica leads it
};

// Bucket bounds in seconds, from 0.1 ms to 60 s.
prometheus::Histogram::BucketBoundaries LatencyBuckets();

}  // namespace tenure

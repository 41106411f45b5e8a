// Every metric of the daemon, declared once: name, labels, help. Served at /metrics by http/; docs/metrics.md lists
// them, and a test keeps the two equal. Labels are bounded (queue, verb, outcome), never ids, tenants or keys. Layer:
// base. Thread-safe.
//
// Adding one: docs/howto/add-a-metric.md.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/metric_type.h"
#include "prometheus/registry.h"
#include "server/base/metric_families.h"

namespace tenure {

// What a metric was declared as.
struct MetricInfo {
  std::string name;
  prometheus::MetricType type;
  std::vector<std::string> labels;  // Each series has exactly these.
  std::string help;
};

class Metrics {
 public:
  static constexpr size_t kMaxQueues = 1000;

  // At most `max_queues` queues get series of their own, see QueueLabels.
  explicit Metrics(size_t max_queues = kMaxQueues);
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  prometheus::Registry& registry() { return *registry_; }
  QueueLabels& queue_labels() { return *queue_labels_; }
  // All metrics in the order of their declaration, those without a series too.
  const std::vector<MetricInfo>& catalog() const { return catalog_; }
  // Series that carry other labels than their metric was declared with: faults in the code. Empty when all is well.
  std::vector<std::string> WronglyLabelled() const;

  // Says which version runs, as tenure_build_info. Call once.
  void SetVersion(std::string_view version);

  // Adds to a family's series, made on first use. The look-up compares the labels: hot loops add once per batch.
  static void Add(CounterFamily& family, const prometheus::Labels& labels, double n = 1) {
    if (n > 0) family.Add(labels).Increment(n);
  }

 private:
  CounterFamily Counters(std::string name, std::vector<std::string> labels, std::string help);
  prometheus::Family<prometheus::Gauge>& Gauges(std::string name, std::vector<std::string> labels, std::string help);
  HistogramFamily Histograms(std::string name, std::vector<std::string> labels, std::string help,
                             prometheus::Histogram::BucketBoundaries buckets);
  QueueLabels* Declare(const std::string& name, prometheus::MetricType type, std::vector<std::string> labels,
                       const std::string& help);

  std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  std::unique_ptr<QueueLabels> queue_labels_;
  std::vector<MetricInfo> catalog_;

 public:
  // Jobs.
  CounterFamily jobs_enqueued;  // queue, outcome: accepted, duplicate, existing, refused
  // queue, outcome: completed, failed, discarded, released, snoozed, cancelled, expired
  CounterFamily jobs_settled;
  CounterFamily jobs_admitted;        // queue
  HistogramFamily job_start_latency;  // queue: from due to claimed
  // Queues. Kept by http/queue_metrics.h, from what the engine knows at each scrape.
  prometheus::Family<prometheus::Gauge>& queue_jobs;              // queue, state
  prometheus::Family<prometheus::Gauge>& queue_oldest_ready_age;  // queue
  prometheus::Family<prometheus::Gauge>& queue_paused;            // queue
  // Admission. Kept by background/admission_gauges.h, by the replica that leads the worker.
  prometheus::Family<prometheus::Gauge>&
      queue_blocked_jobs;  // queue, reason: dependency, group, key, queue, rate, turn
  prometheus::Family<prometheus::Gauge>& queue_waiting_tenants;  // queue
  prometheus::Family<prometheus::Gauge>& queue_limit_jobs;       // queue
  prometheus::Family<prometheus::Gauge>& queue_limit_held_jobs;  // queue
  // Leases.
  CounterFamily lease_acquisitions;                       // queue, outcome: acquired, held
  CounterFamily lease_losses;                             // queue, reason: expired, cancelled
  CounterFamily leases_extended;                          // queue
  CounterFamily stale_tokens;                             // queue, verb
  prometheus::Family<prometheus::Gauge>& leases_tracked;  // none; leases granted by this replica that it watches
  // Claims and long polls.
  prometheus::Family<prometheus::Gauge>& polls_parked;  // kind: claim, notices, get
  CounterFamily claims;                                 // outcome: jobs, empty, cancelled, replayed
  CounterFamily shed;                                   // what: polls, enqueue, queue_full, settle, http_body
  // RPCs.
  CounterFamily rpcs;            // method, code
  HistogramFamily rpc_duration;  // method
  // The HTTP port. Kept by http/.
  CounterFamily http_requests;  // route: rpc, metrics, livez, readyz, other; code: HTTP status
  prometheus::Family<prometheus::Gauge>& http_connections;  // none
  CounterFamily http_refused_connections;                   // none
  // Database, as this replica sees it.
  prometheus::Family<prometheus::Gauge>& db_connections;  // state: idle, busy
  HistogramFamily db_statement_duration;                  // statement
  CounterFamily db_errors;      // class: the first two characters of the SQLSTATE, or connection
  CounterFamily db_retries;     // reason: serialization, deadlock, lock_timeout, partition (made meanwhile), connection
  HistogramFamily batch_items;  // verb
  prometheus::Family<prometheus::Gauge>& event_lag;  // none; seconds since events were last read
  // Database, as a whole. Kept by http/engine_metrics.h.
  prometheus::Family<prometheus::Gauge>& db_oldest_transaction;  // none
  prometheus::Family<prometheus::Gauge>& db_dead_tuples;         // none
  prometheus::Family<prometheus::Gauge>& db_live_tuples;         // none
  prometheus::Family<prometheus::Gauge>& db_clock_difference;    // none
  prometheus::Family<prometheus::Gauge>& db_table_dead_tuples;   // table: of the hot ones
  prometheus::Family<prometheus::Gauge>& db_table_live_tuples;   // table
  prometheus::Family<prometheus::Gauge>& db_index_bytes;         // index: of the hot tables
  prometheus::Family<prometheus::Gauge>& db_index_surplus;       // index: 0 to 1
  CounterFamily db_index_work;                                   // what: rebuilt, dropped, failed
  // Background workers.
  CounterFamily background_panics;    // worker, shard
  CounterFamily background_runs;      // worker, outcome: ok, error
  CounterFamily background_restarts;  // worker
  prometheus::Family<prometheus::Gauge>&
      background_leader;                                   // worker: 1 if this replica leads it, or some of its shards
  prometheus::Family<prometheus::Gauge>& background_term;  // worker: of this replica's lease; 0 if it has none
  prometheus::Family<prometheus::Gauge>& background_shards;  // worker, of those by shard: held by this replica
  // worker; of the cluster: Unix time by the database's clock, by http/engine_metrics.h
  prometheus::Family<prometheus::Gauge>& background_last_success;
  CounterFamily moved_jobs;      // what: dead_letters, backlog, dead_letter_rule
  CounterFamily rewritten_rows;  // rewrite
  // Schedules. By the replica that leads the scheduler, and by the one that was asked to trigger.
  CounterFamily schedule_runs;        // outcome: fired, triggered, missed, overlapped, cancelled_previous
  HistogramFamily schedule_lateness;  // none; from a slot to the commit of its job
  // Targets. By the replica that leads the worker of their purpose (notify, event-log, ...).
  CounterFamily target_objects;                                 // purpose, outcome: written, failed
  CounterFamily target_events;                                  // purpose, outcome: accepted, refused, dead
  HistogramFamily target_request_duration;                      // purpose
  prometheus::Family<prometheus::Gauge>& target_lag;            // purpose
  prometheus::Family<prometheus::Gauge>& target_breakers_open;  // purpose
  // The process. Kept by process_metrics.h.
  prometheus::Family<prometheus::Gauge>& build_info;               // version
  CounterFamily process_cpu;                                       // none
  prometheus::Family<prometheus::Gauge>& process_resident_memory;  // none
  prometheus::Family<prometheus::Gauge>& process_virtual_memory;   // none
  prometheus::Family<prometheus::Gauge>& process_open_fds;         // none
  prometheus::Family<prometheus::Gauge>& process_max_fds;          // none
  prometheus::Family<prometheus::Gauge>& process_threads;          // none
  prometheus::Family<prometheus::Gauge>& process_start_time;       // none
};

}  // namespace tenure

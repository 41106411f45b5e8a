#include "server/base/metrics.h"

namespace tenure {
namespace {

prometheus::Family<prometheus::Counter>& Counters(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}

prometheus::Family<prometheus::Gauge>& Gauges(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}

prometheus::Family<prometheus::Histogram>& Histograms(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry);
}

}  // namespace

Metrics::Metrics()
    : jobs_enqueued(Counters(*registry_, "tenure_jobs_enqueued_total", "Enqueued items by queue and outcome")),
      jobs_settled(Counters(*registry_, "tenure_jobs_settled_total", "Leases and jobs settled by queue and outcome")),
      queue_jobs(Gauges(*registry_, "tenure_queue_jobs", "Live jobs by queue and state, kept from changes; equal on every replica: use max by (queue, state)")),
      queue_oldest_ready_age(Gauges(*registry_, "tenure_queue_oldest_ready_age_seconds", "How long the oldest ready job of the queue has waited; use max by (queue)")),
      queue_paused(Gauges(*registry_, "tenure_queue_paused", "1 if the queue is paused; use max by (queue)")),
      job_start_latency(Histograms(*registry_, "tenure_job_start_latency_seconds", "From when a job was due to when it was claimed, by queue")),
      lease_acquisitions(Counters(*registry_, "tenure_lease_acquisitions_total", "Attempts to take a lease by queue and outcome (acquired, held)")),
      lease_losses(Counters(*registry_, "tenure_lease_losses_total", "Leases that ended without their worker, by queue and reason (expired, cancelled)")),
      leases_extended(Counters(*registry_, "tenure_leases_extended_total", "Accepted Extend items by queue")),
      stale_tokens(Counters(*registry_, "tenure_stale_tokens_total", "Items refused for a stale lease token, by queue and verb")),
      leases_tracked(Gauges(*registry_, "tenure_leases_tracked", "Leases granted by this replica whose end it watches")),
      polls_parked(Gauges(*registry_, "tenure_polls_parked", "Long polls waiting now, by kind (claim, notices, get)")),
      claims(Counters(*registry_, "tenure_claims_total", "Claim calls by outcome (jobs, empty, cancelled, replayed)")),
      shed(Counters(*registry_, "tenure_shed_total", "Requests refused to protect the daemon, by what")),
      rpcs(Counters(*registry_, "tenure_rpcs_total", "Finished RPCs by method and status code")),
      rpc_duration(Histograms(*registry_, "tenure_rpc_duration_seconds", "Duration of RPCs by method; long polls include their wait")),
      db_connections(Gauges(*registry_, "tenure_db_connections", "Database connections by state (idle, busy)")),
      db_statement_duration(Histograms(*registry_, "tenure_db_statement_duration_seconds", "Duration of database transactions by statement")),
      db_errors(Counters(*registry_, "tenure_db_errors_total", "Database errors by SQLSTATE class, or connection")),
      db_retries(Counters(*registry_, "tenure_db_retries_total", "Transactions retried inside the daemon, by reason")),
      batch_items(Histograms(*registry_, "tenure_batch_items", "Items per coalesced statement by verb")),
      event_lag(Gauges(*registry_, "tenure_event_lag_seconds", "Time since this replica last read the events of the others")),
      background_panics(Counters(*registry_, "tenure_background_panics_total", "Background workers that threw, by worker and shard")),
      background_runs(Counters(*registry_, "tenure_background_runs_total", "Runs of background workers by worker and outcome (ok, error)")),
      background_leader(Gauges(*registry_, "tenure_background_leader", "1 if this replica leads the background worker")) {}

prometheus::Histogram::BucketBoundaries LatencyBuckets() {
  return {0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60};
}

}  // namespace tenure

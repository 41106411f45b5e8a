// See metrics.h. Layer: base. Thread-safe.
#include "server/base/metrics.h"

#include <algorithm>
#include <set>
#include <utility>

namespace tenure {
namespace {

// Seconds, from 0.1 ms to 60 s.
prometheus::Histogram::BucketBoundaries LatencyBuckets() {
  return {0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60};
}

// Numbers of items, from 1 to 10,000.
prometheus::Histogram::BucketBoundaries ItemBuckets() {
  return {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000};
}

}  // namespace

QueueLabels* Metrics::Declare(const std::string& name, prometheus::MetricType type, std::vector<std::string> labels,
                              const std::string& help) {
  bool by_queue = std::find(labels.begin(), labels.end(), "queue") != labels.end();
  catalog_.push_back({name, type, std::move(labels), help});
  return by_queue ? queue_labels_.get() : nullptr;
}

CounterFamily Metrics::Counters(std::string name, std::vector<std::string> labels, std::string help) {
  const bool plain = labels.empty();
  QueueLabels* queues = Declare(name, prometheus::MetricType::Counter, std::move(labels), help);
  CounterFamily family(prometheus::BuildCounter().Name(name).Help(help).Register(*registry_), queues);
  if (plain) family.Add({});  // A counter that has not moved is 0, not absent: rate() and alerts need the 0.
  return family;
}

prometheus::Family<prometheus::Gauge>& Metrics::Gauges(std::string name, std::vector<std::string> labels,
                                                       std::string help) {
  Declare(name, prometheus::MetricType::Gauge, std::move(labels), help);
  return prometheus::BuildGauge().Name(name).Help(help).Register(*registry_);
}

HistogramFamily Metrics::Histograms(std::string name, std::vector<std::string> labels, std::string help,
                                    prometheus::Histogram::BucketBoundaries buckets) {
  QueueLabels* queues = Declare(name, prometheus::MetricType::Histogram, std::move(labels), help);
  return HistogramFamily(prometheus::BuildHistogram().Name(name).Help(help).Register(*registry_), queues,
                         std::move(buckets));
}

Metrics::Metrics(size_t max_queues)
    : queue_labels_(std::make_unique<QueueLabels>(max_queues)),
      jobs_enqueued(Counters("tenure_jobs_enqueued_total", {"queue", "outcome"},
                             "Enqueued items by queue and outcome (accepted, duplicate, refused)")),
      jobs_settled(Counters("tenure_jobs_settled_total", {"queue", "outcome"},
                            "Leases and jobs that ended by queue and outcome (completed, failed, discarded, released, "
                            "snoozed, cancelled, expired)")),
      jobs_admitted(Counters("tenure_jobs_admitted_total", {"queue"},
                             "Jobs that passed their keys, group and queue limits and became ready, by queue")),
      job_start_latency(Histograms("tenure_job_start_latency_seconds", {"queue"},
                                   "From when a job was due to when it was claimed, by queue", LatencyBuckets())),
      queue_jobs(Gauges("tenure_queue_jobs", {"queue", "state"},
                        "Live jobs by queue and state; equal on every replica: use max by (queue, state)")),
      queue_oldest_ready_age(
          Gauges("tenure_queue_oldest_ready_age_seconds", {"queue"},
                 "How long the oldest ready job of the queue has waited, 0 if none waits; use max by (queue)")),
      queue_paused(Gauges("tenure_queue_paused", {"queue"}, "1 if the queue is paused; use max by (queue)")),
      queue_blocked_jobs(Gauges("tenure_queue_blocked_jobs", {"queue", "reason"},
                                "Blocked jobs by queue and by what they wait for (dependency, group, key, queue, rate, "
                                "turn); use max by (queue, reason)")),
      queue_waiting_tenants(Gauges("tenure_queue_waiting_tenants", {"queue"},
                                   "Tenants with jobs that wait for a turn, by queue; use max by (queue)")),
      queue_limit_jobs(Gauges("tenure_queue_limit_jobs", {"queue"},
                              "The queue's own limit: ready and leased jobs at once; use max by (queue)")),
      queue_limit_held_jobs(Gauges("tenure_queue_limit_held_jobs", {"queue"},
                                   "How much of the queue's own limit is taken; use max by (queue)")),
      lease_acquisitions(Counters("tenure_lease_acquisitions_total", {"queue", "outcome"},
                                  "Attempts to take a lease by queue and outcome (acquired, held)")),
      lease_losses(Counters("tenure_lease_losses_total", {"queue", "reason"},
                            "Leases that ended without their worker, by queue and reason (expired, cancelled)")),
      leases_extended(Counters("tenure_leases_extended_total", {"queue"}, "Accepted Extend items by queue")),
      stale_tokens(Counters("tenure_stale_tokens_total", {"queue", "verb"},
                            "Items refused for a stale lease token, by queue and verb")),
      leases_tracked(Gauges("tenure_leases_tracked", {}, "Leases granted by this replica whose end it watches")),
      polls_parked(Gauges("tenure_polls_parked", {"kind"}, "Long polls waiting now, by kind (claim, notices, get)")),
      claims(Counters("tenure_claims_total", {"outcome"}, "Claim calls by outcome (jobs, empty, cancelled, replayed)")),
      shed(Counters("tenure_shed_total", {"what"},
                    "Requests refused to protect the daemon, by what (polls, enqueue, settle, http_body)")),
      rpcs(Counters("tenure_rpcs_total", {"method", "code"}, "Finished RPCs by method and status code")),
      rpc_duration(Histograms("tenure_rpc_duration_seconds", {"method"},
                              "Duration of RPCs by method; long polls include their wait", LatencyBuckets())),
      http_requests(Counters("tenure_http_requests_total", {"route", "code"},
                             "Answered HTTP requests by route (rpc, metrics, livez, readyz, other) and HTTP status")),
      http_connections(Gauges("tenure_http_connections", {}, "Open connections of the HTTP port")),
      http_refused_connections(Counters("tenure_http_refused_connections_total", {},
                                        "Connections to the HTTP port refused because too many were open")),
      db_connections(Gauges("tenure_db_connections", {"state"}, "Database connections by state (idle, busy)")),
      db_statement_duration(Histograms("tenure_db_statement_duration_seconds", {"statement"},
                                       "Duration of database transactions by statement", LatencyBuckets())),
      db_errors(Counters("tenure_db_errors_total", {"class"}, "Database errors by SQLSTATE class, or connection")),
      db_retries(Counters("tenure_db_retries_total", {"reason"},
                          "Transactions retried inside the daemon, by reason (serialization, deadlock, lock_timeout, "
                          "partition, connection)")),
      batch_items(Histograms("tenure_batch_items", {"verb"}, "Items per coalesced statement by verb", ItemBuckets())),
      event_lag(Gauges("tenure_event_lag_seconds", {}, "Time since this replica last read the events of all replicas")),
      db_oldest_transaction(Gauges("tenure_db_oldest_transaction_seconds", {},
                                   "Age of the database's oldest open transaction, which holds vacuum back; use max")),
      db_dead_tuples(Gauges("tenure_db_dead_tuples", {}, "Dead rows of the hot tables, as last counted; use max")),
      db_live_tuples(Gauges("tenure_db_live_tuples", {}, "Live rows of the hot tables, as last counted; use max")),
      db_clock_difference(Gauges("tenure_db_clock_difference_seconds", {},
                                 "The database's clock minus this replica's; harmless to jobs, which know only the "
                                 "database's")),
      db_table_dead_tuples(Gauges("tenure_db_table_dead_tuples", {"table"},
                                  "Dead rows of a hot table, as last counted; use max by (table)")),
      db_table_live_tuples(Gauges("tenure_db_table_live_tuples", {"table"},
                                  "Live rows of a hot table, as last counted; use max by (table)")),
      db_index_bytes(Gauges("tenure_db_index_bytes", {"index"}, "Size of an index of a hot table; use max by (index)")),
      db_index_surplus(Gauges("tenure_db_index_surplus_ratio", {"index"},
                              "Part of the index beyond what its rows need, estimated; use max by (index)")),
      db_index_work(
          Counters("tenure_db_index_work_total", {"what"},
                   "Upkeep of indexes by the vacuum guard: rebuilt, dropped (left over from a rebuild that was "
                   "cut short), failed")),
      background_panics(Counters("tenure_background_panics_total", {"worker", "shard"},
                                 "Background workers that threw, by worker and shard")),
      background_runs(Counters("tenure_background_runs_total", {"worker", "outcome"},
                               "Runs of background workers by worker and outcome (ok, error)")),
      background_restarts(Counters("tenure_background_restarts_total", {"worker"},
                                   "Restarts of background workers after a panic, an error or a return")),
      background_leader(Gauges("tenure_background_leader", {"worker"},
                               "1 if this replica leads the background worker, or holds some of its shards, else 0")),
      background_term(Gauges("tenure_background_term", {"worker"},
                             "Term of this replica's lease of the background worker, by shard the highest; 0: none")),
      background_shards(Gauges("tenure_background_shards", {"worker"},
                               "Shards of the background worker that this replica holds; 1024 in all")),
      background_last_success(Gauges("tenure_background_last_success_timestamp_seconds", {"worker"},
                                     "When the background worker last succeeded on any replica, in Unix time by the "
                                     "database's clock; use max by (worker)")),
      moved_jobs(Counters("tenure_moved_jobs_total", {"what"},
                          "Jobs that moves brought to another queue, by what they were (dead_letters, backlog)")),
      rewritten_rows(Counters("tenure_rewritten_rows_total", {"rewrite"},
                              "Rows of earlier releases that were brought into their new form, by rewrite")),
      schedule_runs(Counters("tenure_schedule_runs_total", {"outcome"},
                             "Slots of schedules by outcome (fired, missed, overlapped), runs by hand (triggered), and "
                             "jobs that the next slot ended (cancelled_previous)")),
      schedule_lateness(Histograms("tenure_schedule_lateness_seconds", {},
                                   "From when a slot of a schedule was due to when its job was made",
                                   LatencyBuckets())),
      target_objects(Counters("tenure_target_objects_total", {"purpose", "outcome"},
                              "Objects (files) for targets by purpose and outcome (written: and read back; failed)")),
      target_events(Counters("tenure_target_events_total", {"purpose", "outcome"},
                             "Attempts to hand events over to targets, by purpose and outcome (accepted; refused: will "
                             "be tried again; dead)")),
      target_request_duration(Histograms("tenure_target_request_duration_seconds", {"purpose"},
                                         "Duration of answered requests to targets by purpose", LatencyBuckets())),
      target_lag(
          Gauges("tenure_target_lag_seconds", {"purpose"},
                 "Age of the oldest thing that waits to be handed over to a target, by purpose, 0 if none does")),
      target_breakers_open(Gauges("tenure_target_breakers_open", {"purpose"},
                                  "Targets to which nothing is sent for now, because they failed, by purpose")),
      build_info(Gauges("tenure_build_info", {"version"}, "1; the label says which version runs")),
      process_cpu(Counters("process_cpu_seconds_total", {}, "User and system CPU time spent by the process")),
      process_resident_memory(Gauges("process_resident_memory_bytes", {}, "Resident memory of the process")),
      process_virtual_memory(Gauges("process_virtual_memory_bytes", {}, "Virtual memory of the process")),
      process_open_fds(Gauges("process_open_fds", {}, "Open file descriptors of the process")),
      process_max_fds(Gauges("process_max_fds", {}, "Limit of open file descriptors of the process")),
      process_threads(Gauges("process_threads", {}, "Threads of the process")),
      process_start_time(Gauges("process_start_time_seconds", {}, "When the process started, in Unix time")) {
  // What is known to exist is shown from the start, for the same reason as in Counters.
  for (const char* kind : {"claim", "notices", "get"}) polls_parked.Add({{"kind", kind}});
  for (const char* outcome : {"jobs", "empty", "cancelled", "replayed"}) claims.Add({{"outcome", outcome}});
  for (const char* what : {"polls", "enqueue", "queue_full", "settle", "http_body"}) shed.Add({{"what", what}});
  for (const char* state : {"idle", "busy"}) db_connections.Add({{"state", state}});
  for (const char* reason : {"serialization", "deadlock", "lock_timeout", "partition", "connection"}) {
    db_retries.Add({{"reason", reason}});
  }
  for (const char* outcome : {"fired", "triggered", "missed", "overlapped", "cancelled_previous"}) {
    schedule_runs.Add({{"outcome", outcome}});
  }
  schedule_lateness.Add({});
  for (const char* outcome : {"accepted", "refused", "dead"}) {
    target_events.Add({{"purpose", "notify"}, {"outcome", outcome}});
  }
  for (const char* purpose : {"notify", "event-log", "export", "inventory", "relay"}) {
    target_lag.Add({{"purpose", purpose}});
    target_breakers_open.Add({{"purpose", purpose}});
  }
  for (const char* what : {"dead_letters", "backlog", "dead_letter_rule"}) moved_jobs.Add({{"what", what}});
  for (const char* what : {"rebuilt", "dropped", "failed"}) db_index_work.Add({{"what", what}});
  for (auto* gauge : {&leases_tracked, &http_connections, &event_lag}) gauge->Add({});
}

void Metrics::SetVersion(std::string_view version) { build_info.Add({{"version", std::string(version)}}).Set(1); }

std::vector<std::string> Metrics::WronglyLabelled() const {
  std::vector<std::string> wrong;
  for (const prometheus::MetricFamily& family : registry_->Collect()) {
    auto info = std::find_if(catalog_.begin(), catalog_.end(), [&](const auto& i) { return i.name == family.name; });
    if (info == catalog_.end()) {
      wrong.push_back(family.name + " is not declared");
      continue;
    }
    const std::set<std::string> declared(info->labels.begin(), info->labels.end());
    for (const prometheus::ClientMetric& series : family.metric) {
      std::set<std::string> found;
      std::string text = family.name;
      for (const auto& label : series.label) {
        found.insert(label.name);
        text.append(" ").append(label.name).append("=").append(label.value);
      }
      if (found != declared) wrong.push_back(std::move(text));
    }
  }
  return wrong;
}

}  // namespace tenure

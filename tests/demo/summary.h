// The demo's result: counted from the handlers' records and the ids that the producers were told, and how it is
// printed. Layer: tests. Functions and values only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "records.h"

namespace tenure::demo {

struct Observed {
  std::vector<std::string> accepted;   // Ids that Enqueue answered.
  std::vector<std::string> completed;  // Ids that the daemon lists as COMPLETED.
  std::vector<Record> killed_worker;
  std::vector<Record> surviving_worker;
  int64_t first_sent = 0;       // NowNanos() of the first Enqueue call.
  int64_t killed_at = 0;        // Of the kill.
  int64_t last_outcome_at = 0;  // When the last job was seen to have ended.
};

struct Summary {
  int64_t enqueued = 0;
  int64_t completed = 0;  // Accepted and listed as COMPLETED.
  // Jobs that the killed worker held and the other one completed: their attempt there is not the first, it began after
  // the kill, and no earlier one was the survivor's own.
  int64_t recovered = 0;
  int64_t lost = 0;  // Accepted, but no handler's record says that it ran to its end.
  // Completed jobs by the time from the first Enqueue call to the last outcome, the wait for the dead worker's leases
  // included.
  double jobs_per_second = 0;
  // From the producer's Enqueue call to the handler, over every job's first start; by the nearest rank.
  double start_latency_ms_p50 = 0;
  double start_latency_ms_p99 = 0;

  // Not in the JSON.
  int64_t started_twice = 0;    // Handlers that were started again.
  int64_t never_accepted = 0;   // Ids that handlers ran and nobody enqueued.
  double recovery_seconds = 0;  // From the kill to the last recovered job's start.
  double undisturbed_per_second =
      0;  // As jobs_per_second, but of and up to the last completed job that was not recovered.

  // Why the demo failed, one sentence each; empty if it did not.
  std::vector<std::string> Failures(int64_t jobs) const;
};

Summary Summarize(const Observed& observed);

// 12345 -> "12,345". Not for negative numbers.
std::string Thousands(int64_t number);

// Several lines for people.
std::string ToText(const Summary& summary);
// One line with the seven figures.
std::string ToJson(const Summary& summary);

}  // namespace tenure::demo

// Summary: see the header. Layer: tests.
#include "summary.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "producers.h"
#include "worker.h"

namespace tenure::demo {
namespace {

struct JobHistory {
  bool accepted = false;
  bool ended = false;  // By any handler.
  bool recovered = false;
  int starts = 0;
  int64_t first_start = 0;
  int64_t sent = 0;
  int first_attempt_of_survivor = 0;
  int64_t survivor_start = 0;  // Of its first attempt there.
};

// The nearest rank; 0 without values.
double Percentile(const std::vector<double>& sorted, double percent) {
  if (sorted.empty()) return 0;
  const auto rank = static_cast<size_t>(std::ceil(percent / 100 * static_cast<double>(sorted.size())));
  return sorted[std::clamp<size_t>(rank, 1, sorted.size()) - 1];
}

double PerSecond(int64_t jobs, int64_t nanos) {
  return nanos > 0 ? static_cast<double>(jobs) * 1e9 / static_cast<double>(nanos) : 0;
}

void Count(const Record& record, JobHistory& job) {
  if (record.step == Step::kEnded) job.ended = true;
  if (record.step != Step::kStarted) return;
  ++job.starts;
  job.sent = record.sent;
  if (job.first_start == 0 || record.now < job.first_start) job.first_start = record.now;
}

}  // namespace

Summary Summarize(const Observed& observed) {
  std::unordered_map<std::string, JobHistory> jobs;
  for (const std::string& id : observed.accepted) jobs[id].accepted = true;
  for (const Record& record : observed.killed_worker) Count(record, jobs[record.job_id]);
  for (const Record& record : observed.surviving_worker) {
    JobHistory& job = jobs[record.job_id];
    Count(record, job);
    if (record.step == Step::kStarted && job.first_attempt_of_survivor == 0) {
      job.first_attempt_of_survivor = record.attempt;
      job.survivor_start = record.now;
    }
    if (record.step == Step::kSettled && job.first_attempt_of_survivor > 1 && job.survivor_start > observed.killed_at) {
      job.recovered = true;
    }
  }

  Summary summary;
  summary.enqueued =
      static_cast<int64_t>(std::unordered_set(observed.accepted.begin(), observed.accepted.end()).size());
  std::vector<double> latencies;
  for (const auto& [id, job] : jobs) {
    if (!job.accepted) ++summary.never_accepted;
    if (job.accepted && !job.ended) ++summary.lost;
    if (job.starts > 1) summary.started_twice += job.starts - 1;
    if (job.starts > 0) latencies.push_back(static_cast<double>(job.first_start - job.sent) / 1e6);
    if (job.recovered) {
      ++summary.recovered;
      summary.recovery_seconds =
          std::max(summary.recovery_seconds, static_cast<double>(job.survivor_start - observed.killed_at) / 1e9);
    }
  }
  std::sort(latencies.begin(), latencies.end());
  summary.start_latency_ms_p50 = Percentile(latencies, 50);
  summary.start_latency_ms_p99 = Percentile(latencies, 99);

  for (const std::string& id : std::unordered_set(observed.completed.begin(), observed.completed.end())) {
    const auto job = jobs.find(id);
    if (job != jobs.end() && job->second.accepted) ++summary.completed;
  }
  summary.jobs_per_second = PerSecond(summary.completed, observed.last_outcome_at - observed.first_sent);
  int64_t undisturbed = 0, last = observed.first_sent;
  for (const auto* records : {&observed.killed_worker, &observed.surviving_worker}) {
    for (const Record& record : *records) {
      if (record.step != Step::kSettled || jobs[record.job_id].recovered) continue;
      ++undisturbed;
      last = std::max(last, record.now);
    }
  }
  summary.undisturbed_per_second = PerSecond(undisturbed, last - observed.first_sent);
  return summary;
}

std::vector<std::string> Summary::Failures(int64_t jobs) const {
  std::vector<std::string> failures;
  const auto expect = [&](bool good, std::string sentence) {
    if (!good) failures.push_back(std::move(sentence));
  };
  expect(enqueued == jobs, absl::StrCat("only ", enqueued, " of ", jobs, " jobs were accepted"));
  expect(completed == enqueued, absl::StrCat("only ", completed, " of ", enqueued, " accepted jobs are completed"));
  expect(lost == 0, absl::StrCat(lost, " accepted jobs were run to the end by no handler"));
  expect(recovered > 0, "nothing was recovered after the kill: the killed worker held no job, or none came back");
  expect(never_accepted == 0, absl::StrCat("handlers ran ", never_accepted, " jobs that no producer enqueued"));
  return failures;
}

std::string Thousands(int64_t number) {
  const std::string digits = std::to_string(number);
  std::string text;
  for (size_t at = 0; at < digits.size(); ++at) {
    if (at > 0 && (digits.size() - at) % 3 == 0) text.push_back(',');
    text.push_back(digits[at]);
  }
  return text;
}

std::string ToText(const Summary& summary) {
  std::string text = "Summary\n";
  const auto row = [&](const char* name, const std::string& value, const std::string& what) {
    absl::StrAppendFormat(&text, "  %-25s %10s  %s\n", name, value, what);
  };
  row("enqueued", Thousands(summary.enqueued),
      absl::StrFormat("accepted from %d producers, %d a call", kProducers, kBatch));
  row("completed", Thousands(summary.completed), "by the daemon's own list");
  row("recovered after the kill", Thousands(summary.recovered),
      absl::StrFormat("held by the killed worker; all at work again after %.1f s (leases here are %d s)",
                      summary.recovery_seconds, kLease.count()));
  row("lost", Thousands(summary.lost), "accepted, but finished by no handler");
  row("handlers started again", Thousands(summary.started_twice),
      "delivery is at least once, the outcome is recorded once");
  row("jobs/s", Thousands(std::llround(summary.jobs_per_second)),
      absl::StrFormat("over all, the wait for the dead leases included; %s without it",
                      Thousands(std::llround(summary.undisturbed_per_second))));
  row("enqueue to start, p50", absl::StrFormat("%.1f ms", summary.start_latency_ms_p50),
      absl::StrFormat("from the Enqueue call to the handler, %d jobs in flight", kWindow));
  row("enqueue to start, p99", absl::StrFormat("%.1f ms", summary.start_latency_ms_p99), "by the nearest rank");
  return text;
}

std::string ToJson(const Summary& summary) {
  return absl::StrFormat(R"({"enqueued": %d, "completed": %d, "recovered": %d, "lost": %d, "jobs_per_second": %.1f, )"
                         R"("start_latency_ms_p50": %.3f, "start_latency_ms_p99": %.3f})",
                         summary.enqueued, summary.completed, summary.recovered, summary.lost, summary.jobs_per_second,
                         summary.start_latency_ms_p50, summary.start_latency_ms_p99);
}

}  // namespace tenure::demo

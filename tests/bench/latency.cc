// Scenario latency: from the call that enqueues a job to the start of its handler, at a steady, low rate. Layer: tests
// (benchmark).
#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "measure.h"
#include "progress.h"
#include "tenure_site.h"

namespace tenure::bench {
namespace {

using SteadyClock = std::chrono::steady_clock;

// Several, so that a slow answer does not hold up the jobs after it.
constexpr int kProducers = 4;

int64_t Nanoseconds() { return SteadyClock::now().time_since_epoch().count(); }

// Enqueues every kProducers-th of `jobs` at its time; the payload tells when the call was made.
absl::Status EnqueueOnTime(client::Client& client, int64_t first, int64_t jobs, SteadyClock::time_point start,
                           std::chrono::nanoseconds interval) {
  std::mutex mutex;
  std::condition_variable never;
  std::unique_lock lock(mutex);
  for (int64_t i = first; i < jobs; i += kProducers) {
    never.wait_until(lock, start + i * interval, [] { return false; });
    client::JobSpec spec = NoopJob();
    spec.payload = client::Payload::Bytes(PayloadOf(absl::StrCat(Nanoseconds(), " ")));
    if (absl::Status enqueued = client.Enqueue(spec).status(); !enqueued.ok()) return enqueued;
  }
  return absl::OkStatus();
}

absl::StatusOr<Figures> TenureLatency(RunContext& run) {
  const auto jobs = static_cast<int64_t>(run.sizes().latency_rate * run.sizes().latency_seconds);
  const std::chrono::nanoseconds interval(std::llround(1e9 / run.sizes().latency_rate));
  auto site = TenureSite::Start(run);
  if (!site.ok()) return site.status();
  auto pools = Pools::Make(run, (*site)->daemon(), {{kQueue}});
  if (!pools.ok()) return pools.status();
  std::mutex mutex;
  std::vector<double> milliseconds;  // Guarded by mutex.
  (*pools)->on_start = [&](client::JobContext& job) {
    const int64_t now = Nanoseconds();
    int64_t sent = 0;
    const std::string& data = job.payload().data;
    if (!absl::SimpleAtoi(data.substr(0, data.find(' ')), &sent)) return;  // Of the warm-up.
    std::lock_guard lock(mutex);
    milliseconds.push_back(static_cast<double>(now - sent) / 1e6);
  };
  // Connections, sessions and the queue are there.
  (*pools)->Start();
  constexpr int64_t kWarm = 100;
  if (absl::Status warm = EnqueueMany((*site)->client(), kWarm, 1, 1); !warm.ok()) return warm;
  if (absl::Status done = (*pools)->AwaitCompleted(kWarm, run.progress); !done.ok()) return done;

  Meter meter(run.server, (*site)->daemon().pid());
  if (absl::Status begun = meter.Begin(); !begun.ok()) return begun;
  std::vector<absl::Status> statuses(kProducers);
  {
    std::vector<std::jthread> producers;
    const auto start = SteadyClock::now();
    for (int64_t i = 0; i < kProducers; ++i) {
      producers.emplace_back(
          [&, i] { statuses[static_cast<size_t>(i)] = EnqueueOnTime((*site)->client(), i, jobs, start, interval); });
    }
    if (absl::Status done = (*pools)->AwaitCompleted(kWarm + jobs, run.progress); !done.ok()) return done;
  }
  if (absl::Status over = meter.End(); !over.ok()) return over;
  for (const absl::Status& status : statuses) {
    if (!status.ok()) return status;
  }
  if (absl::Status stopped = (*pools)->Stop(); !stopped.ok()) return stopped;
  Figures figures;
  std::lock_guard lock(mutex);
  if (milliseconds.size() != static_cast<size_t>(jobs)) {
    return absl::DataLossError(absl::StrFormat("%d of %d jobs were seen", milliseconds.size(), jobs));
  }
  figures.Set("start_latency_ms_p50", Percentile(milliseconds, 50));
  figures.Set("start_latency_ms_p99", Percentile(milliseconds, 99));
  figures.Set("start_latency_ms_max", *std::max_element(milliseconds.begin(), milliseconds.end()));
  meter.Report(jobs, figures);
  meter.ReportLoad(figures);
  if (absl::Status finished = (*site)->Finish(kWarm + jobs); !finished.ok()) return finished;
  return figures;
}

}  // namespace

Scenario LatencyScenario(const RunOptions& options) {
  return {
      .name = "latency",
      .what = absl::StrFormat("%.0f jobs a second for %g s, one a call: from the call that enqueues a job to the "
                              "start of its handler, in milliseconds (less is better).",
                              options.sizes.latency_rate, options.sizes.latency_seconds),
      .columns = {{"start_latency_ms_p50", "p50 ms", 2, true},
                  {"start_latency_ms_p99", "p99 ms", 2, true},
                  {"daemon_core_percent", "daemon, % of a core", 1},
                  {"postgres_core_percent", "PostgreSQL, % of a core", 1},
                  {"client_core_percent", "client, % of a core", 1},
                  {"commits_per_job", "commits per job", 2}},
      .contestants = {{"Tenure", TenureLatency}},
      .peer_scenario = "latency",
      .goals = {{.figure = "start_latency_ms_p50", .against = "graphile-worker", .at_least = false, .limit = 1},
                {.figure = "start_latency_ms_p99", .against = "graphile-worker", .at_least = false, .limit = 1}},
  };
}

}  // namespace tenure::bench

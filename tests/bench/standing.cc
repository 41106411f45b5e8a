// Scenarios parked, heartbeat and many-queues: what stands by costs. Layer: tests (benchmark).
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "held_leases.h"
#include "measure.h"
#include "parked_polls.h"
#include "progress.h"
#include "raw_sql.h"
#include "tenure_site.h"

namespace tenure::bench {
namespace {

constexpr int64_t kWarmUp = 20;
// The most queues that a claim may name.
constexpr size_t kQueuesPerClaim = 1000;

// True once so many seconds have passed since it was made.
auto After(double seconds) {
  return [until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds)](int64_t counted) {
    return counted > 0 && std::chrono::steady_clock::now() >= until;
  };
}

absl::StatusOr<Figures> Parked(RunContext& run, int64_t polls) {
  auto site = TenureSite::Start(run);
  if (!site.ok()) return site.status();
  const double seconds = run.sizes().parked_seconds;
  constexpr char kEmptyQueue[] = "parked";
  for (const char* queue : {kQueue, kEmptyQueue}) {
    if (absl::Status made = (*site)->client().CreateQueue(queue).status(); !made.ok()) return made;
  }
  auto parked = ParkedPolls::Park((*site)->daemon().address(), kEmptyQueue, polls, run.server.directory());
  if (!parked.ok()) return parked.status();
  run.progress.Wait("parking", std::min(2.0, seconds));
  Figures figures;
  Meter meter(run.server, (*site)->daemon().pid());
  if (absl::Status begun = meter.Begin(); !begun.ok()) return begun;
  run.progress.Wait("idle", seconds);
  if (absl::Status over = meter.End(); !over.ok()) return over;
  meter.ReportLoad(figures);
  figures.Set("daemon_mib", ResidentMiB((*site)->daemon().pid()));
  run.progress.Say("timing calls");
  const auto times = TimeCalls((*site)->client(), kQueue, kWarmUp, After(seconds));
  if (!times.ok()) return times.status();
  if (absl::Status stayed = (*parked)->Finish(); !stayed.ok()) return stayed;
  figures.Set("complete_ms_p50", Percentile(times->complete, 50));
  figures.Set("complete_ms_p99", Percentile(times->complete, 99));
  figures.Set("claim_ms_p50", Percentile(times->claim, 50));
  const auto done = static_cast<int64_t>(times->complete.size());
  if (absl::Status finished = (*site)->Finish(kWarmUp + done); !finished.ok()) return finished;
  return figures;
}

absl::StatusOr<Figures> Heartbeat(RunContext& run, int64_t leases) {
  auto site = TenureSite::Start(run);
  if (!site.ok()) return site.status();
  std::unique_ptr<HeldLeases> held;
  if (leases > 0) {
    auto taken = HeldLeases::Take((*site)->client(), kQueue, leases, run.sizes().lease_seconds, run.progress);
    if (!taken.ok()) return taken.status();
    held = *std::move(taken);
  }
  Figures figures;
  Meter meter(run.server, (*site)->daemon().pid());
  if (absl::Status begun = meter.Begin(); !begun.ok()) return begun;
  run.progress.Wait("extending", run.sizes().heartbeat_seconds);
  if (absl::Status over = meter.End(); !over.ok()) return over;
  meter.ReportLoad(figures);
  if (held) {
    if (absl::Status completed = held->Complete(); !completed.ok()) return completed;
    held.reset();
  }
  if (absl::Status finished = (*site)->Finish(leases); !finished.ok()) return finished;
  return figures;
}

// The same number of pools whatever the queues, so that only these differ.
absl::StatusOr<Figures> DrainQueues(RunContext& run, size_t queues) {
  const int64_t jobs = run.sizes().many_queues_jobs;
  const auto pool_count = (static_cast<size_t>(run.sizes().queues) + kQueuesPerClaim - 1) / kQueuesPerClaim;
  std::vector<std::string> names;
  for (size_t i = 0; i < queues; ++i) names.push_back(absl::StrCat(kQueue, "-", i));
  std::vector<std::vector<std::string>> of_each(pool_count);
  for (size_t i = 0; i < std::max(queues, pool_count); ++i) of_each[i % pool_count].push_back(names[i % queues]);

  auto site = TenureSite::Start(run);
  if (!site.ok()) return site.status();
  run.progress.Say("filling");
  if (absl::Status filled = EnqueueMany((*site)->client(), jobs, 2, 1000, {}, names); !filled.ok()) return filled;
  if (absl::Status done = run.server.Checkpoint(); !done.ok()) return done;
  auto pools = Pools::Make(run, (*site)->daemon(), of_each);
  if (!pools.ok()) return pools.status();
  Figures figures;
  {
    Meter meter(run.server, (*site)->daemon().pid());
    if (absl::Status begun = meter.Begin(); !begun.ok()) return begun;
    (*pools)->Start();
    if (absl::Status done = (*pools)->AwaitCompleted(jobs, run.progress); !done.ok()) return done;
    if (absl::Status over = meter.End(); !over.ok()) return over;
    meter.Report(jobs, figures);
  }
  Meter idle(run.server, (*site)->daemon().pid());
  if (absl::Status begun = idle.Begin(); !begun.ok()) return begun;
  run.progress.Wait("idle", run.sizes().idle_seconds);
  if (absl::Status over = idle.End(); !over.ok()) return over;
  idle.ReportLoad(figures);
  figures.note = absl::StrFormat("%d worker pools, %d slots, prefetch %s; idle: with their polls parked", pool_count,
                                 run.options.slots, run.options.prefetch_text());
  if (absl::Status stopped = (*pools)->Stop(); !stopped.ok()) return stopped;
  if (absl::Status finished = (*site)->Finish(jobs); !finished.ok()) return finished;
  return figures;
}

}  // namespace

Scenario ParkedScenario(const RunOptions& options) {
  const int64_t polls = options.sizes.polls;
  return {
      .name = "parked",
      .what = absl::StrFormat("%d long polls wait at one daemon: what that costs while nothing else happens, and how "
                              "long one caller's Complete takes meanwhile.",
                              polls),
      .columns = {{"daemon_mib", "daemon RSS MiB", 0, true},
                  {"daemon_core_percent", "daemon idle, % of a core", 1, true},
                  {"postgres_core_percent", "PostgreSQL idle, % of a core", 1},
                  {"complete_ms_p50", "Complete p50 ms", 2, true},
                  {"complete_ms_p99", "Complete p99 ms", 2, true}},
      .contestants = {{"Tenure", [polls](RunContext& run) { return Parked(run, polls); }},
                      {"Tenure, no polls", [](RunContext& run) { return Parked(run, 0); }}},
      .peer_scenario = "",
      .goals = {{.figure = "daemon_mib", .against = "", .at_least = false, .limit = 150},
                {.figure = "daemon_core_percent", .against = "", .at_least = false, .limit = 5},
                {.figure = "complete_ms_p50", .against = "Tenure, no polls", .at_least = false, .limit = 1.2}},
  };
}

Scenario HeartbeatScenario(const RunOptions& options) {
  const int64_t leases = options.sizes.leases;
  return {
      .name = "heartbeat",
      .what = absl::StrFormat("%d leases of %g s are held and extended for %g s; then each is completed.", leases,
                              options.sizes.lease_seconds, options.sizes.heartbeat_seconds),
      .columns = {{"daemon_core_percent", "daemon, % of a core", 1, true},
                  {"postgres_core_percent", "PostgreSQL, % of a core", 1, true},
                  {"client_core_percent", "client, % of a core", 1},
                  {"wal_bytes_per_second", "WAL bytes/s"},
                  {"daemon_peak_mib", "daemon peak RSS MiB"}},
      .contestants = {{"Tenure", [leases](RunContext& run) { return Heartbeat(run, leases); }},
                      {"Tenure, no leases", [](RunContext& run) { return Heartbeat(run, 0); }},
                      {"raw SQL", RawHeartbeat}},
      .peer_scenario = "",
      .goals = {{.figure = "daemon_core_percent", .against = "", .at_least = false, .limit = 5}},
  };
}

Scenario ManyQueuesScenario(const RunOptions& options) {
  const auto queues = static_cast<size_t>(options.sizes.queues);
  return {
      .name = "many-queues",
      .what =
          absl::StrFormat("%d no-op jobs in %d queues are claimed and completed by workers that each claim from all "
                          "of theirs (at most 1,000) at once; then nothing happens for %g s.",
                          options.sizes.many_queues_jobs, queues, options.sizes.idle_seconds),
      .columns = {{"jobs_per_second", "jobs/s", 0, true},
                  {"commits_per_job", "commits per job", 4},
                  {"daemon_cpu_seconds_per_1000_jobs", "daemon CPU s per 1,000 jobs", 4},
                  {"postgres_cpu_seconds_per_1000_jobs", "PostgreSQL CPU s per 1,000 jobs", 4},
                  {"daemon_core_percent", "daemon idle, % of a core", 1, true},
                  {"postgres_core_percent", "PostgreSQL idle, % of a core", 1},
                  {"daemon_peak_mib", "daemon peak RSS MiB"}},
      .contestants = {{"Tenure", [queues](RunContext& run) { return DrainQueues(run, queues); }},
                      {"Tenure, one queue", [](RunContext& run) { return DrainQueues(run, 1); }}},
      .peer_scenario = "",
      .goals = {},
  };
}

}  // namespace tenure::bench

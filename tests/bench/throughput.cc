// Scenarios enqueue, drain, lifecycle and single: how many jobs a second go through. Layer: tests (benchmark).
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "measure.h"
#include "progress.h"
#include "raw_sql.h"
#include "tenure_site.h"

namespace tenure::bench {
namespace {

constexpr int kEnqueueCallers = 16, kJobsPerCall = 100, kSingleCallers = 32;

std::vector<std::vector<std::string>> OneQueue(const RunContext& run) {
  return std::vector<std::vector<std::string>>(static_cast<size_t>(run.options.pools), {kQueue});
}

std::string PoolSettings(const RunContext& run) {
  return absl::StrFormat("%d worker pool%s, %d slots, prefetch %s", run.options.pools,
                         run.options.pools == 1 ? "" : "s", run.options.slots, run.options.prefetch_text());
}

absl::StatusOr<Figures> TenureEnqueue(RunContext& run) {
  const int64_t jobs = run.sizes().jobs;
  auto site = TenureSite::Start(run);
  if (!site.ok()) return site.status();
  // The queue is made, and the connection open.
  if (absl::Status warm = (*site)->client().CreateQueue(kQueue).status(); !warm.ok()) return warm;
  Meter meter(run.server, (*site)->daemon().pid());
  if (absl::Status begun = meter.Begin(); !begun.ok()) return begun;
  if (absl::Status done = EnqueueMany((*site)->client(), jobs, kEnqueueCallers, kJobsPerCall,
                                      [&](int64_t count) { run.progress.Show("enqueued", count, jobs); });
      !done.ok()) {
    return done;
  }
  if (absl::Status over = meter.End(); !over.ok()) return over;
  Figures figures;
  meter.Report(jobs, figures);
  figures.note = absl::StrFormat("%d callers, %d jobs a call", kEnqueueCallers, kJobsPerCall);
  auto database = Database::Open((*site)->database_url());
  if (!database.ok()) return database.status();
  const auto kept = database->Number("select count(*) from tenure.job where state = 3");
  if (!kept.ok()) return kept.status();
  if (*kept != static_cast<double>(jobs)) {
    return absl::DataLossError(absl::StrFormat("%d jobs were acknowledged, %.0f are there", jobs, *kept));
  }
  if (absl::Status stopped = (*site)->daemon().Stop(); !stopped.ok()) return stopped;
  return figures;
}

absl::StatusOr<Figures> TenureDrain(RunContext& run) {
  const int64_t jobs = run.sizes().jobs;
  auto site = TenureSite::Start(run);
  if (!site.ok()) return site.status();
  if (absl::Status filled = (*site)->Fill(jobs); !filled.ok()) return filled;
  auto pools = Pools::Make(run, (*site)->daemon(), OneQueue(run));
  if (!pools.ok()) return pools.status();
  Meter meter(run.server, (*site)->daemon().pid());
  if (absl::Status begun = meter.Begin(); !begun.ok()) return begun;
  (*pools)->Start();
  if (absl::Status done = (*pools)->AwaitCompleted(jobs, run.progress); !done.ok()) return done;
  if (absl::Status over = meter.End(); !over.ok()) return over;
  Figures figures;
  meter.Report(jobs, figures);
  figures.note = PoolSettings(run);
  if (absl::Status stopped = (*pools)->Stop(); !stopped.ok()) return stopped;
  if (absl::Status finished = (*site)->Finish(jobs); !finished.ok()) return finished;
  return figures;
}

absl::StatusOr<Figures> TenureLifecycle(RunContext& run) {
  const int64_t jobs = run.sizes().jobs;
  auto site = TenureSite::Start(run);
  if (!site.ok()) return site.status();
  if (absl::Status warm = (*site)->client().CreateQueue(kQueue).status(); !warm.ok()) return warm;
  auto pools = Pools::Make(run, (*site)->daemon(), OneQueue(run));
  if (!pools.ok()) return pools.status();
  Meter meter(run.server, (*site)->daemon().pid());
  if (absl::Status begun = meter.Begin(); !begun.ok()) return begun;
  (*pools)->Start();
  absl::Status enqueued;
  std::jthread producer([&] { enqueued = EnqueueMany((*site)->client(), jobs, kEnqueueCallers, kJobsPerCall); });
  const absl::Status completed = (*pools)->AwaitCompleted(jobs, run.progress);
  if (absl::Status over = meter.End(); !over.ok()) return over;
  producer.join();
  if (!enqueued.ok()) return enqueued;
  if (!completed.ok()) return completed;
  Figures figures;
  meter.Report(jobs, figures);
  figures.note = absl::StrFormat("%d callers, %d jobs a call; %s", kEnqueueCallers, kJobsPerCall, PoolSettings(run));
  if (absl::Status stopped = (*pools)->Stop(); !stopped.ok()) return stopped;
  if (absl::Status finished = (*site)->Finish(jobs); !finished.ok()) return finished;
  return figures;
}

// One caller of `single`: claims one job and completes it, as long as there are tickets.
absl::Status WorkSingly(client::Client& client, int64_t jobs, std::atomic<int64_t>& tickets,
                        std::atomic<int64_t>& completed) {
  client::ClaimOptions claim;
  claim.worker_id = client::NewWorkerId();
  claim.queues = {{kQueue}};
  claim.wait = std::chrono::seconds(20);
  while (tickets.fetch_add(1) < jobs) {
    auto claimed = client.Claim(claim);
    if (!claimed.ok()) return claimed.status();
    if (claimed->jobs.size() != 1) {
      return absl::DataLossError(
          absl::StrCat("a claim got no job, of ", jobs, " only ", completed.load(), " are completed"));
    }
    const auto settled = client.Complete({.lease_token = claimed->jobs[0].lease_token, .result = {}, .follow_ups = {}});
    if (!settled.ok()) return settled.status();
    ++completed;
  }
  return absl::OkStatus();
}

absl::StatusOr<Figures> TenureSingle(RunContext& run) {
  const int64_t jobs = run.sizes().single_jobs;
  auto site = TenureSite::Start(run);
  if (!site.ok()) return site.status();
  if (absl::Status filled = (*site)->Fill(jobs); !filled.ok()) return filled;
  Meter meter(run.server, (*site)->daemon().pid());
  if (absl::Status begun = meter.Begin(); !begun.ok()) return begun;
  std::atomic<int64_t> tickets{0}, completed{0};
  std::mutex mutex;
  std::condition_variable changed;
  absl::Status status;  // Guarded by mutex, as is `running`.
  int running = kSingleCallers;
  std::vector<std::jthread> callers;
  for (int i = 0; i < kSingleCallers; ++i) {
    callers.emplace_back([&] {
      const absl::Status mine = WorkSingly((*site)->client(), jobs, tickets, completed);
      std::lock_guard lock(mutex);
      status.Update(mine);
      --running;
      changed.notify_all();
    });
  }
  {
    std::unique_lock lock(mutex);
    while (!changed.wait_for(lock, std::chrono::milliseconds(100), [&] { return running == 0; })) {
      run.progress.Show("completed", completed, jobs);
    }
  }
  if (absl::Status over = meter.End(); !over.ok()) return over;
  if (!status.ok()) return status;
  Figures figures;
  meter.Report(jobs, figures);
  figures.note = absl::StrFormat("%d callers, one connection", kSingleCallers);
  callers.clear();
  if (absl::Status finished = (*site)->Finish(jobs); !finished.ok()) return finished;
  return figures;
}

const std::vector<Column>& ThroughputColumns() {
  static const auto* const kColumns = new std::vector<Column>{
      {"jobs_per_second", "jobs/s", 0, true},
      {"wal_bytes_per_job", "WAL bytes per job"},
      {"commits_per_job", "commits per job", 4},
      {"daemon_cpu_seconds_per_1000_jobs", "daemon CPU s per 1,000 jobs", 4},
      {"postgres_cpu_seconds_per_1000_jobs", "PostgreSQL CPU s per 1,000 jobs", 4},
      {"client_cpu_seconds_per_1000_jobs", "client CPU s per 1,000 jobs", 4},
      {"daemon_peak_mib", "daemon peak RSS MiB"},
  };
  return *kColumns;
}

}  // namespace

Scenario EnqueueScenario(const RunOptions& options) {
  return {
      .name = "enqueue",
      .what = absl::StrFormat("%s jobs of 100 bytes are enqueued and acknowledged.", absl::StrCat(options.sizes.jobs)),
      .columns = ThroughputColumns(),
      .contestants = {{"Tenure", TenureEnqueue}, {"raw SQL", RawEnqueue}},
      .peer_scenario = "enqueue",
      .goals = {{.figure = "jobs_per_second", .against = "raw SQL", .limit = 0.7}},
  };
}

Scenario DrainScenario(const RunOptions& options) {
  return {
      .name = "drain",
      .what = absl::StrFormat("%d no-op jobs that wait are claimed and completed, from the start of the workers to the "
                              "last job recorded as done.",
                              options.sizes.jobs),
      .columns = ThroughputColumns(),
      .contestants = {{"Tenure", TenureDrain}, {"raw SQL", RawDrain}},
      .peer_scenario = "drain",
      .goals = {{.figure = "jobs_per_second", .against = "raw SQL", .limit = 0.7},
                {.figure = "jobs_per_second", .against = "graphile-worker batched", .limit = 2}},
  };
}

Scenario LifecycleScenario(const RunOptions& options) {
  return {
      .name = "lifecycle",
      .what = absl::StrFormat("%d no-op jobs are enqueued while they are being claimed and completed, from the first "
                              "call to the last job recorded as done.",
                              options.sizes.jobs),
      .columns = ThroughputColumns(),
      .contestants = {{"Tenure", TenureLifecycle}, {"raw SQL", RawLifecycle}},
      .peer_scenario = "",
      .goals = {},
  };
}

Scenario SingleScenario(const RunOptions& options) {
  return {
      .name = "single",
      .what = absl::StrFormat("%d no-op jobs that wait are claimed and completed one by one: a call for each claim and "
                              "for each completion, no batching by the client.",
                              options.sizes.single_jobs),
      .columns = ThroughputColumns(),
      .contestants = {{"Tenure", TenureSingle}, {"raw SQL", RawSingle}},
      .peer_scenario = "single",
      .goals = {{.figure = "jobs_per_second", .against = "graphile-worker", .limit = 4}},
  };
}

}  // namespace tenure::bench

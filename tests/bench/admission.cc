// Scenarios keyed, groups, fair and blocked: what admission costs those who use it, and those who do not. Layer: tests
// (benchmark).
#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "database.h"
#include "measure.h"
#include "postgres_server.h"
#include "progress.h"
#include "tenure_site.h"

namespace tenure::bench {
namespace {

constexpr int kKeys = 1'000, kSlotsOfAKey = 10, kPerCall = 1'000;
// Tenants, a quarter of them of each weight from 1 to 4.
constexpr int kTenants = 100;
constexpr int64_t kWarmUp = 50;

// Enqueues `jobs` jobs, the n-th as `shape` makes it.
absl::Status Enqueue(client::Client& client, int64_t jobs, Progress& progress,
                     const std::function<void(int64_t n, client::JobSpec& spec)>& shape) {
  for (int64_t from = 0; from < jobs; from += kPerCall) {
    std::vector<client::JobSpec> specs(static_cast<size_t>(std::min<int64_t>(kPerCall, jobs - from)), NoopJob());
    for (size_t i = 0; i < specs.size(); ++i) shape(from + static_cast<int64_t>(i), specs[i]);
    for (const auto& answer : client.EnqueueBatch(specs)) {
      if (!answer.ok()) return answer.status();
    }
    progress.Show("enqueued", from + static_cast<int64_t>(specs.size()), jobs);
  }
  return absl::OkStatus();
}

std::string KeyOf(int64_t n) { return absl::StrCat("key:", n % kKeys); }

std::string TenantOf(int64_t n) { return absl::StrCat("t", n % kTenants); }
int WeightOf(int64_t tenant) { return static_cast<int>(tenant % 4) + 1; }

// What share of the first starts each weight got, against what is its due, while all tenants had jobs waiting; the
// largest difference, in percent of the due.
absl::StatusOr<double> ShareError(TenureSite& site, int64_t jobs) {
  absl::StatusOr<Database> database = Database::Open(site.database_url());
  if (!database.ok()) return database.status();
  // The first to run out are those of weight 4, once jobs * 10 / 16 have started.
  return database->Number(absl::StrFormat(
      "select max(abs(started * 10 / (weight * total) - 1)) * 100 from (select weight, count(*)::float8 as started, "
      "sum(count(*)) over ()::float8 as total from (select substr(tenant, 2)::int %% 4 + 1 as weight from "
      "tenure.history "
      "order by leased_at, id limit %d) j group by weight) w",
      jobs / 2));
}

// Drains jobs that were enqueued with the workers at rest.
absl::StatusOr<Figures> Drain(RunContext& run, const std::function<void(int64_t n, client::JobSpec& spec)>& shape,
                              bool fair = false) {
  const int64_t jobs = run.sizes().jobs;
  auto site = TenureSite::Start(run);
  if (!site.ok()) return site.status();
  if (absl::Status made = (*site)->client().CreateQueue(kQueue).status(); !made.ok()) return made;
  client::LimitSpec limit;
  limit.max_leased = kSlotsOfAKey;
  if (absl::Status set = (*site)->client().SetLimit(kQueue, client::LimitScope::kPrefix, "key:", limit).status();
      !set.ok()) {
    return set;
  }
  if (fair) {
    client::QueueSettings settings;
    settings.fair_tenants = true;
    if (absl::Status set = (*site)->client().UpdateQueue(kQueue, settings).status(); !set.ok()) return set;
    for (int tenant = 0; tenant < kTenants; ++tenant) {
      client::LimitSpec weight;
      weight.weight = WeightOf(tenant);
      absl::Status set =
          (*site)->client().SetLimit(kQueue, client::LimitScope::kTenant, TenantOf(tenant), weight).status();
      if (!set.ok()) return set;
    }
  }
  if (absl::Status filled = Enqueue((*site)->client(), jobs, run.progress, shape); !filled.ok()) return filled;
  if (absl::Status done = run.server.Checkpoint(); !done.ok()) return done;
  auto pools = Pools::Make(run, (*site)->daemon(),
                           std::vector<std::vector<std::string>>(static_cast<size_t>(run.options.pools), {kQueue}));
  if (!pools.ok()) return pools.status();
  Meter meter(run.server, (*site)->daemon().pid());
  if (absl::Status begun = meter.Begin(); !begun.ok()) return begun;
  (*pools)->Start();
  if (absl::Status done = (*pools)->AwaitCompleted(jobs, run.progress); !done.ok()) return done;
  if (absl::Status over = meter.End(); !over.ok()) return over;
  Figures figures;
  meter.Report(jobs, figures);
  if (absl::Status stopped = (*pools)->Stop(); !stopped.ok()) return stopped;
  if (fair) {
    const absl::StatusOr<double> error = ShareError(**site, jobs);
    if (!error.ok()) return error.status();
    figures.Set("share_error_percent", *error);
  }
  if (absl::Status finished = (*site)->Finish(jobs); !finished.ok()) return finished;
  return figures;
}

void Plain(int64_t, client::JobSpec&) {}

// Claims of jobs without keys, while `blocked` jobs wait behind full keys.
absl::StatusOr<Figures> Claims(RunContext& run, int64_t blocked) {
  auto site = TenureSite::Start(run);
  if (!site.ok()) return site.status();
  client::Client& client = (*site)->client();
  if (absl::Status made = client.CreateQueue(kQueue).status(); !made.ok()) return made;
  client::LimitSpec one;
  one.max_leased = 1;
  if (absl::Status set = client.SetLimit(kQueue, client::LimitScope::kPrefix, "key:", one).status(); !set.ok()) {
    return set;
  }
  absl::Status filled = Enqueue(client, blocked, run.progress,
                                [](int64_t n, client::JobSpec& spec) { spec.concurrency_keys = {KeyOf(n)}; });
  if (!filled.ok()) return filled;
  // One of each key is held, so that all keys are full.
  client::ClaimOptions claim;
  claim.worker_id = "holder";
  claim.queues = {{kQueue}};
  claim.max_jobs = 500;
  claim.wait = std::chrono::seconds(5);
  claim.lease = std::chrono::hours(1);
  for (int64_t held = 0; held < std::min<int64_t>(blocked, kKeys);) {
    const auto claimed = client.Claim(claim);
    if (!claimed.ok()) return claimed.status();
    if (claimed->jobs.empty()) return absl::DataLossError("a slot of a key is free, and nothing is admitted");
    held += static_cast<int64_t>(claimed->jobs.size());
  }
  if (absl::Status done = run.server.Checkpoint(); !done.ok()) return done;
  const int64_t wanted = run.sizes().backlog_claims;
  const auto times = TimeCalls(client, kQueue, kWarmUp, [&](int64_t counted) {
    run.progress.Show("claimed", counted, wanted);
    return counted >= wanted;
  });
  if (!times.ok()) return times.status();
  Figures figures;
  figures.Set("claim_ms_p50", Percentile(times->claim, 50));
  figures.Set("claim_ms_p99", Percentile(times->claim, 99));
  figures.Set("enqueue_ms_p50", Percentile(times->enqueue, 50));
  figures.Set("complete_ms_p50", Percentile(times->complete, 50));
  if (absl::Status stopped = (*site)->daemon().Stop(); !stopped.ok()) return stopped;
  return figures;
}

const std::vector<Column>& DrainColumns() {
  static const auto* const kColumns = new std::vector<Column>{
      {"jobs_per_second", "jobs/s", 0, true},
      {"wal_bytes_per_job", "WAL bytes per job"},
      {"commits_per_job", "commits per job", 4},
      {"daemon_cpu_seconds_per_1000_jobs", "daemon CPU s per 1,000 jobs", 4},
      {"postgres_cpu_seconds_per_1000_jobs", "PostgreSQL CPU s per 1,000 jobs", 4},
  };
  return *kColumns;
}

}  // namespace

Scenario KeyedScenario(const RunOptions& options) {
  return {
      .name = "keyed",
      .what = absl::StrFormat("%d no-op jobs that wait are drained, each with one of %d concurrency keys of %d slots.",
                              options.sizes.jobs, kKeys, kSlotsOfAKey),
      .columns = DrainColumns(),
      .contestants = {{"Tenure",
                       [](RunContext& run) {
                         return Drain(run,
                                      [](int64_t n, client::JobSpec& spec) { spec.concurrency_keys = {KeyOf(n)}; });
                       }},
                      {"Tenure, no keys", [](RunContext& run) { return Drain(run, Plain); }}},
      .peer_scenario = "",
      .goals = {{.figure = "jobs_per_second", .against = "Tenure, no keys", .limit = 0.5}},
  };
}

Scenario GroupsScenario(const RunOptions& options) {
  const int64_t groups = std::min<int64_t>(100'000, options.sizes.jobs / 2);
  return {
      .name = "groups",
      .what = absl::StrFormat("%d no-op jobs that wait are drained, in %d groups, each in strict order.",
                              options.sizes.jobs, groups),
      .columns = DrainColumns(),
      .contestants = {{"Tenure",
                       [groups](RunContext& run) {
                         return Drain(run, [groups](int64_t n, client::JobSpec& spec) {
                           spec.group_key = absl::StrCat("group:", n % groups);
                         });
                       }},
                      {"Tenure, no groups", [](RunContext& run) { return Drain(run, Plain); }}},
      .peer_scenario = "",
      .goals = {{.figure = "jobs_per_second", .against = "Tenure, no groups", .limit = 0.3}},
  };
}

Scenario FairScenario(const RunOptions& options) {
  std::vector<Column> columns = DrainColumns();
  columns.push_back({"share_error_percent", "share error %", 1, true});
  return {
      .name = "fair",
      .what = absl::StrFormat("%d no-op jobs that wait are drained, of %d tenants that take turns, with weights from 1 "
                              "to 4; how far the shares of the first half are from the weights.",
                              options.sizes.jobs, kTenants),
      .columns = columns,
      .contestants = {{"Tenure",
                       [](RunContext& run) {
                         return Drain(
                             run, [](int64_t n, client::JobSpec& spec) { spec.tenant = TenantOf(n); }, /*fair=*/true);
                       }},
                      {"Tenure, no turns",
                       [](RunContext& run) {
                         return Drain(run, [](int64_t n, client::JobSpec& spec) { spec.tenant = TenantOf(n); });
                       }}},
      .peer_scenario = "",
      .goals = {{.figure = "share_error_percent", .against = "", .at_least = false, .limit = 5}},
  };
}

Scenario BlockedScenario(const RunOptions& options) {
  const int64_t blocked = options.sizes.blocked;
  return {
      .name = "blocked",
      .what = absl::StrFormat("Jobs without keys are enqueued, claimed and completed one by one while %d jobs wait "
                              "behind %d full keys.",
                              blocked, kKeys),
      .columns = {{"claim_ms_p99", "claim p99 ms", 2, true},
                  {"claim_ms_p50", "claim p50 ms", 2},
                  {"enqueue_ms_p50", "enqueue p50 ms", 2},
                  {"complete_ms_p50", "complete p50 ms", 2}},
      .contestants = {{"Tenure", [blocked](RunContext& run) { return Claims(run, blocked); }},
                      {"Tenure, none blocked", [](RunContext& run) { return Claims(run, 0); }}},
      .peer_scenario = "",
      .goals = {{.figure = "claim_ms_p99", .against = "Tenure, none blocked", .at_least = false, .limit = 1.2}},
  };
}

}  // namespace tenure::bench

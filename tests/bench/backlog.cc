// Scenario backlog: does a claim become slower when much waits and more has ended? Layer: tests (benchmark).
#include <chrono>
#include <memory>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/substitute.h"
#include "measure.h"
#include "postgres_server.h"
#include "progress.h"
#include "tenure_site.h"

namespace tenure::bench {
namespace {

constexpr char kDatabase[] = "bench_backlog";
constexpr int64_t kWarmUp = 50;

// Jobs as enqueue.sql makes them. $0 how many, $1 state, $2 due in, $3 failures; ids in order.
constexpr char kJobs[] = R"sql(
insert into tenure.job (id, queue_id, state, place, priority, day, failures, due_at, created_at, updated_at, kind,
                        payload_size, payload, content_type, error_message, error_attempt, error_at)
select nextval('tenure.job_id'), q.id, $1, $1, 0, tenure.today(), $3, now() + $2, now(), now(), 'noop',
       100, convert_to(repeat('.', 100), 'UTF8'), 'application/octet-stream',
       case when $3 > 0 then 'it failed' end, case when $3 > 0 then 1 end, case when $3 > 0 then now() end
from tenure.queue q, generate_series(1, $0) as n
where q.name = 'bench'
)sql";

// What complete.sql keeps of a job. $0 how many, $1 how many days ago they ended.
constexpr char kHistory[] = R"sql(
insert into tenure.history (ended_on, id, queue_id, state, priority, day, attempt, failures, crashes, releases, snoozes,
                            token, token_secret, settled_verb, worker, leased_at, due_at, created_at, started_at,
                            ended_at, kind, payload_size, payload, content_type)
select current_date - $1, nextval('tenure.job_id'), q.id, 6, 0, tenure.today() - $1, 1, 0, 0, 0, 0,
       1, 1, 1, 'bench', t.at, t.at, t.at, t.at,
       t.at, 'noop', 100, convert_to(repeat('.', 100), 'UTF8'), 'application/octet-stream'
from tenure.queue q, generate_series(1, $0) as n, (select now() - $1 * interval '1 day' as at) as t
where q.name = 'bench'
)sql";

// The counts that the events of all this would have been folded into.
constexpr char kCounts[] = R"sql(
insert into tenure.queue_count as c (queue_id, scheduled, blocked, suspended, ready, completed, enqueued)
select q.id, $0, $1, $2, $3, $4, $5 from tenure.queue q where q.name = 'bench'
on conflict (queue_id) do update set scheduled = excluded.scheduled, blocked = excluded.blocked,
  suspended = excluded.suspended, ready = excluded.ready, completed = excluded.completed, enqueued = excluded.enqueued
)sql";

// A database with everything in it, and no daemon on it.
absl::StatusOr<std::string> MakeBacklog(RunContext& run) {
  const Sizes& sizes = run.sizes();
  auto url = run.server.CreateDatabase(kDatabase);
  if (!url.ok()) return url.status();
  {
    auto site = TenureSite::Start(run, *url);  // Makes the schema.
    if (!site.ok()) return site.status();
    if (absl::Status made = (*site)->client().CreateQueue(kQueue).status(); !made.ok()) return made;
    if (absl::Status stopped = (*site)->daemon().Stop(); !stopped.ok()) return stopped;
  }
  auto database = Database::Open(*url);
  if (!database.ok()) return database.status();
  const auto execute = [&](const std::string& what, const std::string& sql) {
    run.progress.Say(what);
    return database->Execute(sql);
  };
  constexpr int kDays = 6;  // Within retention.
  const int64_t blocked = sizes.backlog_waiting / 2, suspended = sizes.backlog_waiting - blocked;
  absl::Status done = execute("preparing", "set synchronous_commit = off");
  // The oldest first, as ids grow.
  for (int day = kDays - 1; done.ok() && day >= 0; --day) {
    done = execute(absl::StrFormat("filling: ended, %d days ago", day),
                   absl::StrCat("select tenure.ensure_day(tenure.today() - ", day, ");",
                                absl::Substitute(kHistory, sizes.backlog_ended / kDays, day)));
  }
  for (const auto& [count, state, due, failures] :
       {std::tuple{blocked, 2, "interval '0'", 1},
        {suspended, 5, "interval '0'", 1},
        {sizes.backlog_scheduled, 1, "interval '1 day' + n * interval '1 millisecond'", 0},
        {sizes.backlog_ready, 3, "interval '0'", 0}}) {
    if (!done.ok()) break;
    done = execute(absl::StrFormat("filling: state %d", state), absl::Substitute(kJobs, count, state, due, failures));
  }
  if (done.ok()) {
    done = execute("counting", absl::Substitute(kCounts, sizes.backlog_scheduled, blocked, suspended,
                                                sizes.backlog_ready, sizes.backlog_ended / kDays * kDays,
                                                sizes.backlog_ended / kDays * kDays + sizes.backlog_scheduled +
                                                    sizes.backlog_waiting + sizes.backlog_ready));
  }
  if (done.ok()) done = execute("vacuuming", "vacuum analyze");
  if (done.ok()) done = run.server.Checkpoint();
  if (!done.ok()) return done;
  return *url;
}

absl::StatusOr<Figures> TimeClaims(RunContext& run, const std::string& database_url) {
  const auto before = std::chrono::steady_clock::now();
  auto site = TenureSite::Start(run, database_url);
  if (!site.ok()) return site.status();
  const double start_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
  run.progress.Say("timing calls");
  const int64_t claims = run.sizes().backlog_claims;
  const auto times = TimeCalls((*site)->client(), kQueue, kWarmUp, [&](int64_t counted) {
    run.progress.Show("claims", counted, claims);
    return counted >= claims;
  });
  if (!times.ok()) return times.status();
  Figures figures;
  figures.Set("claim_ms_p99", Percentile(times->claim, 99));
  figures.Set("claim_ms_p50", Percentile(times->claim, 50));
  figures.Set("enqueue_ms_p50", Percentile(times->enqueue, 50));
  figures.Set("complete_ms_p50", Percentile(times->complete, 50));
  figures.Set("complete_ms_p99", Percentile(times->complete, 99));
  figures.Set("start_seconds", start_seconds);
  figures.Set("daemon_mib", ResidentMiB((*site)->daemon().pid()));
  if (database_url.empty()) {
    if (absl::Status finished = (*site)->Finish(kWarmUp + claims); !finished.ok()) return finished;
  } else if (absl::Status stopped = (*site)->daemon().Stop(); !stopped.ok()) {
    return stopped;
  }
  return figures;
}

}  // namespace

Scenario BacklogScenario(const RunOptions& options) {
  const Sizes& sizes = options.sizes;
  // Filled once, and kept for all runs.
  auto backlog = std::make_shared<std::string>();
  const auto full = [backlog](RunContext& run) -> absl::StatusOr<Figures> {
    if (backlog->empty()) {
      auto made = MakeBacklog(run);
      if (!made.ok()) return made.status();
      *backlog = *made;
    }
    return TimeClaims(run, *backlog);
  };
  return {
      .name = "backlog",
      .what = absl::StrFormat("One caller enqueues a job, claims one and completes it, over and over, in a queue with "
                              "%d ready, %d scheduled and %d blocked or suspended jobs and %d that have ended; and in "
                              "an empty one (less is better).",
                              sizes.backlog_ready, sizes.backlog_scheduled, sizes.backlog_waiting, sizes.backlog_ended),
      .columns = {{"claim_ms_p99", "claim p99 ms", 2, true},
                  {"claim_ms_p50", "claim p50 ms", 2, true},
                  {"enqueue_ms_p50", "enqueue p50 ms", 2},
                  {"complete_ms_p50", "complete p50 ms", 2},
                  {"complete_ms_p99", "complete p99 ms", 2},
                  {"start_seconds", "daemon start s", 2},
                  {"daemon_mib", "daemon RSS MiB"}},
      .contestants = {{"Tenure", full}, {"Tenure, empty queue", [](RunContext& run) { return TimeClaims(run, ""); }}},
      .peer_scenario = "",
      .goals = {{.figure = "claim_ms_p99", .against = "Tenure, empty queue", .at_least = false, .limit = 1.2}},
      .clear_up = [](RunContext& run) { return run.server.DropDatabase(kDatabase); },
  };
}

}  // namespace tenure::bench

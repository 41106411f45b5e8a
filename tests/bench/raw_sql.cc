// Raw SQL: see the header. Layer: tests (benchmark).
#include "raw_sql.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "database.h"
#include "measure.h"
#include "postgres_server.h"
#include "progress.h"
#include "tenure_site.h"

namespace tenure::bench {
namespace {

constexpr char kDatabase[] = "bench_raw";
constexpr int64_t kBatch = 1000;
constexpr int kSingleSessions = 16;

constexpr char kSchema[] = R"sql(
create table job (
  id bigint generated always as identity,
  queue_id bigint not null,
  state smallint not null default 0,           -- 0 ready, 1 leased
  priority smallint not null default 0,
  attempt int not null default 0,
  max_attempts int not null default 20,
  token bigint not null default 0,
  worker text,
  lease_until timestamptz,
  due_at timestamptz not null default now(),
  created_at timestamptz not null default now(),
  started_at timestamptz,
  kind text not null,
  payload bytea not null,
  content_type text,
  primary key (id)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 2);
create index job_ready on job (queue_id, priority, id) where state = 0;
create table history (
  like job,
  ended_at timestamptz not null,
  primary key (id)
);
)sql";

constexpr char kEnqueue[] = R"sql(
insert into job (queue_id, kind, content_type, payload)
select $1::bigint, $2::text, 'application/octet-stream', p from unnest($3::bytea[]) as p
returning id
)sql";

// Reads on from where the last claim ended: dead entries at the head of the index would slow it down.
constexpr char kClaim[] = R"sql(
with next as materialized (
  select id from job
  where queue_id = $1::bigint and state = 0 and priority = 0 and id > $2::bigint
  order by id limit $3::bigint
  for update skip locked
)
update job set state = 1, attempt = attempt + 1, token = token + 1, worker = $4::text,
               lease_until = now() + interval '30 seconds', started_at = now()
where id = any (array(select id from next))
returning id, token, attempt::bigint, kind, payload
)sql";

constexpr char kComplete[] = R"sql(
with ended as (
  delete from job where id = any ($1::bigint[]) and worker = $2::text and state = 1
  returning *
)
insert into history select e.*, now() from ended e
)sql";

std::string Sessions(int sessions, int64_t rows) {
  return absl::StrFormat("%d session%s, %d row%s a statement", sessions, sessions == 1 ? "" : "s", rows,
                         rows == 1 ? "" : "s");
}

class Session {
 public:
  static absl::StatusOr<std::unique_ptr<Session>> Open(const std::string& url, const std::string& worker) {
    auto database = Database::Open(url);
    if (!database.ok()) return database.status();
    std::unique_ptr<Session> session(new Session(*std::move(database), worker));
    for (const auto& [name, sql] : {std::pair{"enqueue", kEnqueue}, {"claim", kClaim}, {"complete", kComplete}}) {
      if (absl::Status prepared = session->database_.Prepare(name, sql); !prepared.ok()) return prepared;
    }
    return session;
  }

  absl::Status Enqueue(const std::vector<std::string>& payloads) {
    return database_.Run("enqueue", {Int8(1), Text(kKind), ByteaArray(payloads)}).status();
  }

  // The ids that it got, sorted.
  absl::StatusOr<std::vector<int64_t>> Claim(int64_t jobs) {
    auto rows = database_.Run("claim", {Int8(1), Int8(cursor_), Int8(jobs), Text(worker_)});
    if (!rows.ok()) return rows.status();
    std::vector<int64_t> ids;
    for (int row = 0; row < rows->size(); ++row) ids.push_back(rows->Int8At(row, 0));
    std::sort(ids.begin(), ids.end());
    if (!ids.empty()) cursor_ = ids.back();
    return ids;
  }

  absl::Status Complete(const std::vector<int64_t>& ids) {
    return database_.Run("complete", {Int8Array(ids), Text(worker_)}).status();
  }

 private:
  Session(Database database, std::string worker) : database_(std::move(database)), worker_(std::move(worker)) {}

  Database database_;
  const std::string worker_;
  int64_t cursor_ = 0;
};

// A database with the schema and sessions on it.
class RawSite {
 public:
  static absl::StatusOr<std::unique_ptr<RawSite>> Make(RunContext& run, int sessions) {
    auto url = run.server.CreateDatabase(kDatabase);
    if (!url.ok()) return url.status();
    auto database = Database::Open(*url);
    if (!database.ok()) return database.status();
    if (absl::Status made = database->Execute(kSchema); !made.ok()) return made;
    std::unique_ptr<RawSite> site(new RawSite(run, *std::move(database)));
    for (int i = 0; i < sessions; ++i) {
      auto session = Session::Open(*url, absl::StrFormat("worker-%d", i));
      if (!session.ok()) return session.status();
      site->sessions.push_back(*std::move(session));
    }
    return site;
  }

  absl::Status Fill(int64_t jobs) {
    run_.progress.Say("filling");
    const std::vector<std::string> payloads(kBatch, PayloadOf());
    for (int64_t done = 0; done < jobs; done += kBatch) {
      const auto count = static_cast<std::ptrdiff_t>(std::min(kBatch, jobs - done));
      if (absl::Status ok = sessions[0]->Enqueue({payloads.begin(), payloads.begin() + count}); !ok.ok()) return ok;
    }
    if (absl::Status done = database_.Execute("vacuum analyze job"); !done.ok()) return done;
    return run_.server.Checkpoint();
  }

  // Checks the counts and drops the database.
  absl::Status Finish(int64_t live, int64_t ended) {
    sessions.clear();
    const auto left = database_.Number("select count(*) from job");
    const auto kept = database_.Number("select count(*) from history");
    if (!left.ok()) return left.status();
    if (!kept.ok()) return kept.status();
    if (*left != static_cast<double>(live) || *kept != static_cast<double>(ended)) {
      return absl::DataLossError(
          absl::StrFormat("raw SQL: %.0f live and %.0f ended jobs, instead of %d and %d", *left, *kept, live, ended));
    }
    return run_.server.DropDatabase(kDatabase);
  }

  std::vector<std::unique_ptr<Session>> sessions;

 private:
  RawSite(RunContext& run, Database database) : run_(run), database_(std::move(database)) {}

  RunContext& run_;
  Database database_;
};

// One thread each; the first error.
absl::Status InParallel(const std::vector<std::function<absl::Status()>>& parts) {
  std::mutex mutex;
  absl::Status status;
  {
    std::vector<std::jthread> threads;
    for (const auto& part : parts) {
      threads.emplace_back([&] {
        const absl::Status mine = part();
        std::lock_guard lock(mutex);
        status.Update(mine);
      });
    }
  }
  return status;
}

// Claims and completes until `completed` has reached `jobs`, by one session.
absl::Status DrainBy(Session& session, int64_t batch, int64_t jobs, std::atomic<int64_t>& completed) {
  while (completed < jobs) {
    auto ids = session.Claim(batch);
    if (!ids.ok()) return ids.status();
    if (ids->empty()) continue;  // The rest is with other sessions, or not enqueued yet.
    if (absl::Status done = session.Complete(*ids); !done.ok()) return done;
    completed += static_cast<int64_t>(ids->size());
  }
  return absl::OkStatus();
}

absl::Status EnqueueBy(Session& session, int64_t jobs, std::atomic<int64_t>& enqueued) {
  const std::vector<std::string> payloads(kBatch, PayloadOf());
  while (true) {
    const int64_t from = enqueued.fetch_add(kBatch);
    if (from >= jobs) return absl::OkStatus();
    const auto count = static_cast<std::ptrdiff_t>(std::min(kBatch, jobs - from));
    const absl::Status done =
        count == kBatch ? session.Enqueue(payloads) : session.Enqueue({payloads.begin(), payloads.begin() + count});
    if (!done.ok()) return done;
  }
}

// Runs `parts` under a meter.
absl::StatusOr<Figures> Measured(RunContext& run, RawSite& site, int64_t jobs, int64_t live, int64_t ended,
                                 const std::vector<std::function<absl::Status()>>& parts) {
  Figures figures;
  Meter meter(run.server, 0);
  run.progress.Say("running");
  if (absl::Status begun = meter.Begin(); !begun.ok()) return begun;
  if (absl::Status done = InParallel(parts); !done.ok()) return done;
  if (absl::Status over = meter.End(); !over.ok()) return over;
  meter.Report(jobs, figures);
  if (absl::Status finished = site.Finish(live, ended); !finished.ok()) return finished;
  return figures;
}

absl::StatusOr<Figures> DrainWith(RunContext& run, int sessions, int64_t batch, int64_t jobs) {
  auto site = RawSite::Make(run, sessions);
  if (!site.ok()) return site.status();
  if (absl::Status filled = (*site)->Fill(jobs); !filled.ok()) return filled;
  std::atomic<int64_t> completed{0};
  std::vector<std::function<absl::Status()>> parts;
  for (const auto& session : (*site)->sessions) {
    parts.emplace_back([&, batch, jobs] { return DrainBy(*session, batch, jobs, completed); });
  }
  auto figures = Measured(run, **site, jobs, 0, jobs, parts);
  if (figures.ok()) figures->note = Sessions(sessions, batch);
  return figures;
}

}  // namespace

absl::StatusOr<Figures> RawEnqueue(RunContext& run) {
  const int64_t jobs = run.sizes().jobs;
  auto site = RawSite::Make(run, run.options.raw_connections);
  if (!site.ok()) return site.status();
  std::atomic<int64_t> enqueued{0};
  std::vector<std::function<absl::Status()>> parts;
  for (const auto& session : (*site)->sessions) {
    parts.emplace_back([&] { return EnqueueBy(*session, jobs, enqueued); });
  }
  auto figures = Measured(run, **site, jobs, jobs, 0, parts);
  if (figures.ok()) {
    figures->note = Sessions(run.options.raw_connections, kBatch);
  }
  return figures;
}

absl::StatusOr<Figures> RawDrain(RunContext& run) {
  return DrainWith(run, run.options.raw_connections, kBatch, run.sizes().jobs);
}

absl::StatusOr<Figures> RawSingle(RunContext& run) {
  return DrainWith(run, kSingleSessions, 1, run.sizes().single_jobs);
}

absl::StatusOr<Figures> RawLifecycle(RunContext& run) {
  const int64_t jobs = run.sizes().jobs;
  auto site = RawSite::Make(run, 2);
  if (!site.ok()) return site.status();
  std::atomic<int64_t> enqueued{0}, completed{0};
  auto figures = Measured(run, **site, jobs, 0, jobs,
                          {[&] { return EnqueueBy(*(*site)->sessions[0], jobs, enqueued); },
                           [&] { return DrainBy(*(*site)->sessions[1], kBatch, jobs, completed); }});
  if (figures.ok()) figures->note = Sessions(2, kBatch);
  return figures;
}

}  // namespace tenure::bench

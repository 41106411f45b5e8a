// RawSession and RawSite: see the header. Layer: tests (benchmark).
#include "raw_session.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "postgres_server.h"
#include "progress.h"
#include "tenure_site.h"

namespace tenure::bench {
namespace {

constexpr char kDatabase[] = "bench_raw";

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

constexpr char kExtend[] = R"sql(
update job set lease_until = now() + interval '30 seconds'
where id = any ($1::bigint[]) and worker = $2::text and state = 1
)sql";

constexpr char kComplete[] = R"sql(
with ended as (
  delete from job where id = any ($1::bigint[]) and worker = $2::text and state = 1
  returning *
)
insert into history select e.*, now() from ended e
)sql";

}  // namespace

absl::StatusOr<std::unique_ptr<RawSession>> RawSession::Open(const std::string& url, const std::string& worker) {
  auto database = Database::Open(url);
  if (!database.ok()) return database.status();
  std::unique_ptr<RawSession> session(new RawSession(*std::move(database), worker));
  for (const auto& [name, sql] :
       {std::pair{"enqueue", kEnqueue}, {"claim", kClaim}, {"extend", kExtend}, {"complete", kComplete}}) {
    if (absl::Status prepared = session->database_.Prepare(name, sql); !prepared.ok()) return prepared;
  }
  return session;
}

absl::Status RawSession::Enqueue(const std::vector<std::string>& payloads) {
  return database_.Run("enqueue", {Int8(1), Text(kKind), ByteaArray(payloads)}).status();
}

absl::StatusOr<std::vector<int64_t>> RawSession::Claim(int64_t jobs) {
  auto rows = database_.Run("claim", {Int8(1), Int8(cursor_), Int8(jobs), Text(worker_)});
  if (!rows.ok()) return rows.status();
  std::vector<int64_t> ids;
  for (int row = 0; row < rows->size(); ++row) ids.push_back(rows->Int8At(row, 0));
  std::sort(ids.begin(), ids.end());
  if (!ids.empty()) cursor_ = ids.back();
  return ids;
}

absl::Status RawSession::Extend(const std::vector<int64_t>& ids) {
  return database_.Run("extend", {Int8Array(ids), Text(worker_)}).status();
}

absl::Status RawSession::Complete(const std::vector<int64_t>& ids) {
  return database_.Run("complete", {Int8Array(ids), Text(worker_)}).status();
}

absl::StatusOr<std::unique_ptr<RawSite>> RawSite::Make(RunContext& run, int sessions) {
  auto url = run.server.CreateDatabase(kDatabase);
  if (!url.ok()) return url.status();
  auto database = Database::Open(*url);
  if (!database.ok()) return database.status();
  if (absl::Status made = database->Execute(kSchema); !made.ok()) return made;
  std::unique_ptr<RawSite> site(new RawSite(run, *url, *std::move(database)));
  for (int i = 0; i < sessions; ++i) {
    auto session = RawSession::Open(*url, absl::StrFormat("worker-%d", i));
    if (!session.ok()) return session.status();
    site->sessions.push_back(*std::move(session));
  }
  return site;
}

absl::Status RawSite::Fill(int64_t jobs) {
  run_.progress.Say("filling");
  const std::vector<std::string> payloads(kRawBatch, PayloadOf());
  for (int64_t done = 0; done < jobs; done += kRawBatch) {
    const auto count = static_cast<std::ptrdiff_t>(std::min(kRawBatch, jobs - done));
    if (absl::Status ok = sessions[0]->Enqueue({payloads.begin(), payloads.begin() + count}); !ok.ok()) return ok;
  }
  if (absl::Status done = database_.Execute("vacuum analyze job"); !done.ok()) return done;
  return run_.server.Checkpoint();
}

absl::Status RawSite::Finish(int64_t live, int64_t ended) {
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

}  // namespace tenure::bench

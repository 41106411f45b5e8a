// A ledger of leader leases and shard leases, kept by triggers in the database of a test: each term that was ever
// granted, to whom, and when. What is audited is thus all that happened, not how it stood at the end. Layer: tests.
#pragma once

#include <functional>
#include <string>

namespace tenure::testing {

// `sql` runs one command and answers the first column of its first row.
inline void KeepLedger(const std::function<std::string(const std::string&)>& sql) {
  sql("create table public.ledger (id bigint generated always as identity, worker text, first_shard int, last_shard "
      "int, term bigint, "
      "replica_id int, at timestamptz default clock_timestamp(), expires_at timestamptz, previous_expiry timestamptz)");
  sql("create function public.note_leader() returns trigger language plpgsql as $$ begin "
      "if tg_op = 'INSERT' or new.term <> old.term then "
      "insert into public.ledger (worker, term, replica_id, expires_at, previous_expiry) values (new.worker, new.term, "
      "new.replica_id, "
      "new.expires_at, case when tg_op = 'UPDATE' then old.expires_at end); "
      "end if; return null; end $$");
  sql("create trigger note_leader after insert or update on tenure.leader for each row execute function "
      "public.note_leader()");
  sql("create function public.note_shards() returns trigger language plpgsql as $$ begin "
      "if new.replica_id is not null then "
      "insert into public.ledger (worker, first_shard, last_shard, term, replica_id, expires_at) values (new.worker, "
      "new.first_shard, "
      "new.last_shard, new.term, new.replica_id, new.expires_at); "
      "end if; return null; end $$");
  sql("create trigger note_shards after insert on tenure.shard_lease for each row execute function "
      "public.note_shards()");
  sql("create trigger note_shard_renewals after update on tenure.shard_lease for each row "
      "when (new.replica_id is distinct from old.replica_id) execute function public.note_shards()");
}

// Empty if each term of each worker had exactly one holder, terms followed one another without gap, and none began
// while the one before was valid; else what was wrong.
inline std::string AuditLeaders(const std::function<std::string(const std::string&)>& sql) {
  return sql(
      "select string_agg(format('%s term %s of replica %s at %s after %s until %s', worker, term, replica_id, at, "
      "last_term, "
      "previous_expiry), '; ') from ("
      "  select l.*, lag(term) over (partition by worker order by id) as last_term from public.ledger l where "
      "first_shard is null) l "
      "where (last_term is not null and term <> last_term + 1) or previous_expiry > at");
}

// Empty if no shard had two holders under one term, and no term of a shard was granted after a higher one.
inline std::string AuditShards(const std::function<std::string(const std::string&)>& sql) {
  return sql(
      "with grants as (select l.worker, s as shard, l.term, l.replica_id, l.id from public.ledger l "
      "  cross join lateral generate_series(l.first_shard, l.last_shard) s where l.first_shard is not null) "
      "select string_agg(what, '; ') from ("
      "  (select format('%s shard %s term %s had several holders', worker, shard, term) as what from grants "
      "   group by worker, shard, term having count(distinct replica_id) > 1 limit 5) "
      "  union all "
      "  (select format('%s shard %s term %s came after %s', worker, shard, term, before) from ("
      "     select g.*, lag(term) over (partition by worker, shard order by id) as before from grants g) g where term "
      "< before limit 5)"
      ") wrong");
}

// Empty if the worker's rows cover each shard once.
inline std::string AuditTiling(const std::function<std::string(const std::string&)>& sql, const std::string& worker) {
  return sql(
      "select case when sum(last_shard - first_shard + 1) <> 1024 or count(*) filter (where first_shard <> expected) > "
      "0 then "
      "string_agg(first_shard || '-' || last_shard, ' ' order by first_shard) end from ("
      "  select l.*, coalesce(lag(last_shard) over (order by first_shard) + 1, 0) as expected from tenure.shard_lease "
      "l "
      "  where worker = '" +
      worker + "') l");
}

}  // namespace tenure::testing

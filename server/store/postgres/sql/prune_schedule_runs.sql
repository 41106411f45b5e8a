-- Forgets runs past their age. $1, $2 name and term of the leader; $3 age in microseconds; $4 limit. Reads the index schedule_run_fired.
-- Answers how many.
with in_term as materialized (
  select true as yes from tenure.leader l where l.worker = $1 and l.term = $2 for share
),
old as materialized (
  select r.schedule_id, r.slot from tenure.schedule_run r
  where r.fired_at < now() - $3::bigint * interval '1 microsecond' and exists (select 1 from in_term)
  order by r.fired_at limit $4
),
removed as (
  delete from tenure.schedule_run r where (r.schedule_id, r.slot) in (select o.schedule_id, o.slot from old o) returning 1
)
select count(*) as runs from removed;

-- Forgets dead deliveries of a target. $1, $2 leader, $3 target, $4 age in microseconds, $5 how many are looked at, the oldest first. Reads the index delivery_dead.
with in_term as materialized (
  select true as yes from tenure.leader l where l.worker = $1 and l.term = $2 for share
),
gone as (
  delete from tenure.delivery d where d.target_id = $3 and d.id = any (array(
    select o.id from (
      select d.id, d.last_failed_at from tenure.delivery d where d.target_id = $3 and d.dead order by d.id limit $5
    ) o
    where o.last_failed_at < now() - $4::bigint * interval '1 microsecond' and exists (select 1 from in_term)))
  returning 1
)
select exists (select 1 from in_term) as in_term, (select count(*) from gone) as gone;

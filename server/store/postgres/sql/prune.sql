-- Removes keys past their retention, old worker rows and outages. $1, $2 leader, $3 limit of each.
with in_term as materialized (
  select true as yes from tenure.leader l where l.worker = $1 and l.term = $2 for share
),
keys as (
  delete from tenure.idempotency as k where k.ctid = any (array(
    select k2.ctid from tenure.idempotency k2 where k2.expires_at <= now() and exists (select 1 from in_term)
    order by k2.expires_at limit $3 for update skip locked))
  returning 1
),
workers as (
  delete from tenure.worker as w where w.last_claim_at < now() - interval '1 day' and exists (select 1 from in_term) returning 1
),
outages as (
  delete from tenure.outage as o where o.ended_at < now() - interval '1 day' and exists (select 1 from in_term) returning 1
)
select (select count(*) from keys) as removed,
       (select count(*) from workers) + (select count(*) from outages) as others;

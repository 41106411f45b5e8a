-- Removes keys past their retention, claim requests past their window, old worker rows and outages. $1, $2 leader, $3 limit of each.
with in_term as materialized (
  select true as yes from tenure.leader l where l.worker = $1 and l.term = $2 for share
),
keys as (
  delete from tenure.idempotency as k where k.ctid = any (array(
    select k2.ctid from tenure.idempotency k2 where k2.expires_at <= now() and exists (select 1 from in_term)
    order by k2.expires_at limit $3 for update skip locked))
  returning 1
),
requests as (
  delete from tenure.claim_request as r where r.request_id = any (array(
    select r2.request_id from tenure.claim_request r2 where r2.expires_at <= now() and exists (select 1 from in_term)
    order by r2.expires_at limit $3 for update skip locked))
  returning r.request_id
),
grants as (
  delete from tenure.claim_grant as g where g.request_id = any (array(select r.request_id from requests r)) returning 1
),
workers as (
  delete from tenure.worker as w where w.last_claim_at < now() - interval '1 day' and exists (select 1 from in_term) returning 1
),
outages as (
  delete from tenure.outage as o where o.ended_at < now() - interval '1 day' and exists (select 1 from in_term) returning 1
)
select (select count(*) from keys) + (select count(*) from requests) as removed,
       (select count(*) from grants) + (select count(*) from workers) + (select count(*) from outages) as others;

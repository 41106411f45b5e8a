-- Removes the keys past their retention of the queues whose shards are held; with shard 0 also old worker rows and outages, and what rates,
-- pauses and turns remember of keys and tenants that have been idle. $1 worker,
-- $2 first shard and $3 term of the fence, $4 limit of each. Reads the index idempotency_expires.
with in_term as materialized (
  select l.first_shard, l.last_shard from tenure.shard_lease l
  where l.worker = $1 and l.first_shard = $2 and l.term = $3 and l.replica_id is not null for share
),
keys as (
  delete from tenure.idempotency as k where k.ctid = any (array(
    select k2.ctid from tenure.idempotency k2
    where k2.expires_at <= now()
      and tenure.shard_of(k2.queue_id) between (select t.first_shard from in_term t) and (select t.last_shard from in_term t)
    order by k2.expires_at limit $4 for update skip locked))
  returning 1
),
workers as (
  delete from tenure.worker as w
  where w.last_claim_at < now() - interval '1 day' and exists (select 1 from in_term t where t.first_shard = 0) returning 1
),
outages as (
  delete from tenure.outage as o
  where o.ended_at < now() - interval '1 day' and exists (select 1 from in_term t where t.first_shard = 0) returning 1
),
paces as (
  delete from tenure.admission_pace as p where p.ctid = any (array(
    select p2.ctid from tenure.admission_pace p2
    where greatest(p2.next_at, p2.paused_until) < now() - interval '1 hour' and exists (select 1 from in_term t where t.first_shard = 0)
    limit $4 for update skip locked))
  returning 1
),
shares as (
  delete from tenure.fair_share as s where s.ctid = any (array(
    select s2.ctid from tenure.fair_share s2 join tenure.fair_clock c on c.queue_id = s2.queue_id
    where s2.next_start <= c.virtual_time and exists (select 1 from in_term t where t.first_shard = 0)
    limit $4 for update of s2 skip locked))
  returning 1
)
select (select count(*) from keys) as removed,
       (select count(*) from workers) + (select count(*) from outages) + (select count(*) from paces) + (select count(*) from shares) as others;

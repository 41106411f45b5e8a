-- Forgets unique keys that nobody holds, of a page. $1 worker, $2 first shard and $3 term of the fence: nothing is written once the term is over; $4, $5 queue and
-- name after which the page begins, $6 how many to look at. Answers the last one looked at, how many there were, and how many were forgotten. Locks
-- what it forgets, passing over keys in use: one whose holder was changed since it was read stays. Primary keys of tenure.unique_key and tenure.job.
with in_term as materialized (
  select l.first_shard, l.last_shard from tenure.shard_lease l
  where l.worker = $1 and l.first_shard = $2 and l.term = $3 and l.replica_id is not null for share
),
page as materialized (
  select k.queue_id, k.name, k.job_id, k.held_until from tenure.unique_key k
  where (k.queue_id, k.name) > ($4::int, $5::text) and exists (select 1 from in_term) order by k.queue_id, k.name limit $6
),
over as materialized (
  select p.* from page p
  left join lateral (select true as yes from tenure.job j where j.id = p.job_id and j.queue_id = p.queue_id limit 1) live on true
  where p.held_until <= now() and live.yes is null
    and tenure.shard_of(p.queue_id) between (select t.first_shard from in_term t) and (select t.last_shard from in_term t)
),
locked as materialized (
  select k.ctid as at from over o
  cross join lateral (
    select k.ctid from tenure.unique_key k
    where k.queue_id = o.queue_id and k.name = o.name and k.job_id = o.job_id and k.held_until = o.held_until for update skip locked
  ) k
),
removed as (
  delete from tenure.unique_key as k where k.ctid = any (array(select l.at from locked l)) returning 1
)
select p.queue_id, p.name, (select count(*) from page) as seen, (select count(*) from removed) as removed
from page p order by p.queue_id desc, p.name desc limit 1;

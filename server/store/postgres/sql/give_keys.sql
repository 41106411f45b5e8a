-- Writes down which jobs idempotency keys stand for, after take_keys.sql in the same transaction; a key whose item was refused is given back. $1 queue,
-- $2 scope, $3 keys (sorted), $4 jobs (0: refused), $5 their days, $6 whether the job held a unique key. (By ctid: the rows are this
-- transaction's own. queue_id + 0, or the planner reads all keys of the queue.) Primary key of tenure.idempotency.
with input as materialized (
  select i.* from unnest($3::text[], $4::bigint[], $5::int[], $6::boolean[]) as i (key, job_id, job_day, existing)
),
refused as (
  delete from tenure.idempotency as k
  where k.queue_id + 0 = $1 and k.ctid = any (array(
    select h.at from input i
    cross join lateral (select k2.ctid as at from tenure.idempotency k2 where k2.queue_id = $1 and k2.scope = $2 and k2.key = i.key limit 1) h
    where i.job_id = 0))
)
update tenure.idempotency as k
set (job_id, job_day, existing) = (select i.job_id, i.job_day, i.existing from input i where i.key = k.key)
where k.queue_id + 0 = $1 and k.ctid = any (array(
    select h.at from input i
    cross join lateral (select k2.ctid as at from tenure.idempotency k2 where k2.queue_id = $1 and k2.scope = $2 and k2.key = i.key limit 1) h
    where i.job_id <> 0));

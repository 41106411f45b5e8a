-- Writes down who holds unique keys now. $1 queue, $2 names, which the caller has locked, $3 jobs, $4 their days, $5 periods in microseconds; a period that runs
-- is not cut short. (By ctid: the rows are locked, so these are their last versions. queue_id + 0, or the planner reads all keys of
-- the queue.) Primary key of tenure.unique_key.
with input as materialized (
  select i.* from unnest($2::text[], $3::bigint[], $4::int[], $5::bigint[]) as i (name, job_id, job_day, period_us)
)
update tenure.unique_key as k
set (job_id, job_day, held_until) = (select i.job_id, i.job_day, greatest(k.held_until, now() + i.period_us * interval '1 microsecond') from input i where i.name = k.name)
where k.queue_id + 0 = $1 and k.ctid = any (array(
  select h.at from input i cross join lateral (select k2.ctid as at from tenure.unique_key k2 where k2.queue_id = $1 and k2.name = i.name limit 1) h));

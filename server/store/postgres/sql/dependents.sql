-- Who waits for jobs of one queue whose end has not been counted yet. $1 the jobs waited for, $2 their queue, $3 at most so many rows. Locks nothing. Primary key
-- of tenure.dependency.
select d.awaited_id, d.awaited_day, d.job_id, d.queue_id from unnest($1::bigint[]) as i (id)
cross join lateral (
  select d.* from tenure.dependency d where d.awaited_id = i.id and d.awaited_queue_id = $2 and d.outcome is null order by d.job_id limit $3
) d
limit $3;

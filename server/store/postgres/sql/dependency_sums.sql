-- How it stands with what jobs wait for: how many have not ended, and the first that ended without completing. $1 the jobs, whose rows the caller has locked
-- in an earlier statement. Locks nothing. Index dependency_job.
select i.id, s.waiting, s.any_end, s.release, s.failed_id, s.failed_queue, s.failed_day, s.failed_outcome from unnest($1::bigint[]) as i (id)
cross join lateral (
  select count(*) filter (where d.outcome is null) as waiting, bool_or(d.any_end) as any_end, bool_or(d.release) as release,
         min(d.awaited_id) filter (where d.outcome <> 6) as failed_id,
         (array_agg(d.awaited_queue_id order by d.awaited_id) filter (where d.outcome <> 6))[1] as failed_queue,
         (array_agg(d.awaited_day order by d.awaited_id) filter (where d.outcome <> 6))[1] as failed_day,
         (array_agg(d.outcome order by d.awaited_id) filter (where d.outcome <> 6))[1] as failed_outcome
  from tenure.dependency d where d.job_id + 0 = i.id
) s;

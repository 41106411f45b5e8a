-- Who waits for a job that was moved to another queue waits for the job that it became. $1 the job that was moved, $2 the other, $3 its queue, $4 its day. The
-- caller has marked the other (await_jobs.sql). Primary key of tenure.dependency.
with double as materialized (
  select d.job_id from tenure.dependency d
  where d.awaited_id = $1 and d.outcome is null and exists (select 1 from tenure.dependency o where o.awaited_id = $2 and o.job_id = d.job_id)
),
dropped as (
  delete from tenure.dependency as d where d.awaited_id = $1 and d.job_id = any (array(select x.job_id from double x))
)
update tenure.dependency as d set awaited_id = $2, awaited_queue_id = $3, awaited_day = $4
where d.awaited_id = $1 and d.outcome is null and not d.job_id = any (array(select x.job_id from double x));

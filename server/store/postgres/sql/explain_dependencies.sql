-- What a job waits for: at most $2 of the jobs that have not ended, and how many there are. $1 the job. Index dependency_job.
select d.awaited_queue_id, d.awaited_day, d.awaited_id, count(*) over () as jobs
from tenure.dependency d where d.job_id + 0 = $1 and d.outcome is null order by d.awaited_id + 0 limit $2;

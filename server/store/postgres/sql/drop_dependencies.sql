-- Forgets what jobs waited for, that wait no more. $1 the jobs. Index dependency_job.
delete from tenure.dependency as d where d.job_id + 0 = any ($1::bigint[]);

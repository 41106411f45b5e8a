-- The job that a request id made. $1 id of the schedule, $2 request id.
select r.job_queue_id, r.job_day, r.job_id from tenure.schedule_run r where r.schedule_id = $1 and r.request_id = $2;

-- Where a job was moved to. $1 id, $2 queue. By primary key.
select tenure.job_text(f.to_queue_id, f.to_job_day, f.to_job_id) as forwarded_to from tenure.forward f where f.job_id = $1 and f.queue_id = $2;

-- Writes down what jobs wait for. $1 the jobs waited for, $2 their queues, $3 their days, $4 the jobs that wait, $5 their queues, $6 whether any end will do,
-- $7 whether one that did not complete releases the job. In the transaction that makes the waiting jobs, after await_jobs.sql. Locks nothing.
insert into tenure.dependency as d (awaited_id, awaited_queue_id, awaited_day, job_id, queue_id, any_end, release)
select i.* from unnest($1::bigint[], $2::int[], $3::int[], $4::bigint[], $5::int[], $6::boolean[], $7::boolean[]) as i
on conflict (awaited_id, job_id) do nothing;

-- Who waits for a queue's own gate, the first of them: higher priority first, then the order of enqueue. $1 queue, $2 at most so many.
-- Locks nothing: admit.sql does. Index job_gate.
select j.id, j.priority, j.gate, j.concurrency_keys from tenure.job j
where j.queue_id = $1 and j.gate = 6 order by j.priority desc, j.id limit $2;

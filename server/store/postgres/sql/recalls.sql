-- Queues whose ready jobs are sent back to their gate. $1 at most so many. Locks nothing.
select r.queue_id from tenure.admission_recall r order by r.queue_id limit $1;

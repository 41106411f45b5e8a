-- How many limits of a scope a queue has. $1 queue, $2 scope, $3 leaving out this key.
select count(*) from tenure.admission_limit l where l.queue_id = $1 and l.scope = $2 and l.key <> $3;

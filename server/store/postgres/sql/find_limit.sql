-- $1 queue, $2 scope, $3 key.
select l.* from tenure.admission_limit l where l.queue_id = $1 and l.scope = $2 and l.key = $3;

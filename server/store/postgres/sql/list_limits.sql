-- Limits of one queue in the order of scope and key, after ($2 scope, $3 key), at most $4. $1 queue.
select l.* from tenure.admission_limit l where l.queue_id = $1 and (l.scope, l.key) > ($2::smallint, $3::text) order by l.scope, l.key limit $4;

-- $1 worker, $2 replica, $3 ok, $4 error, $5 restarted, $6 how many runs it speaks of.
update tenure.shard_member as m
set runs = m.runs + $6, restarts = m.restarts + case when $5 then 1 else 0 end,
    last_success_at = case when $3 then now() else m.last_success_at end,
    last_error = case when $3 then m.last_error else $4 end
where m.worker = $1 and m.replica_id = $2;

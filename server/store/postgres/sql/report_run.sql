-- $1 worker, $2 ok, $3 error, $4 restarted, $5 how many runs it speaks of.
update tenure.leader as l
set runs = l.runs + $5, restarts = l.restarts + case when $4 then 1 else 0 end,
    last_success_at = case when $2 then now() else l.last_success_at end,
    last_error = case when $2 then l.last_error else $3 end
where l.worker = $1;

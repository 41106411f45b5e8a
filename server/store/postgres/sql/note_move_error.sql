-- $1, $2 name and term of the leader; $3 move, $4 why its step failed.
update tenure.move as m set last_error = $4, updated_at = now()
where m.id = $3 and m.state = 1 and exists (select 1 from tenure.leader l where l.worker = $1 and l.term = $2 for share);

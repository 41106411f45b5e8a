-- One emptier at a time, and only a leader; whoever makes a target waits, since its place must be seen. $1 worker, $2 term. Answers whether it is time.
select now() - r.rotated_at > interval '10 minutes' as rotate from tenure.outbox_rotation r, tenure.leader l
where l.worker = $1 and l.term = $2 for update of r for share of l;

-- $1 replica, $2 lease in microseconds, $3 draining, $4 backend pids, $5 their starts. No row: the replica's own lease ran out.
update tenure.replica as r
set heartbeat_at = now(), lease_until = now() + $2::bigint * interval '1 microsecond', draining = $3, backend_pids = $4, backend_starts = $5
where r.id = $1 and r.lease_until > now() returning r.id;

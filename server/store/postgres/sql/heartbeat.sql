-- $1 replica, $2 lease in microseconds, $3 draining, $4 backend pids, $5 their starts, $6 when the
-- replica last heard from the database: a heartbeat that arrives late tells no more than that (list_orphans.sql). No row: the replica's own lease ran out.
update tenure.replica as r
set heartbeat_at = least(now(), $6::timestamptz), lease_until = now() + $2::bigint * interval '1 microsecond', draining = $3, backend_pids = $4, backend_starts = $5
where r.id = $1 and r.lease_until > now() returning r.id;

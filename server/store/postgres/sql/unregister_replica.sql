-- A replica that leaves in order: its leases are recovered by the others as they run out, its leaderships are free at once. $1 replica.
with freed as (
  update tenure.leader as l set expires_at = '-infinity', replica_id = null, holder = '' where l.replica_id = $1
)
update tenure.replica as r set lease_until = '-infinity', draining = true, backend_pids = '{}', backend_starts = '{}' where r.id = $1;

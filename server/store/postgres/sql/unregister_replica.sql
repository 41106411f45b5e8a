-- A replica that leaves in order: its leases are recovered by the others as they run out, its leaderships and shards are free at once. $1 replica.
with freed as (
  update tenure.leader as l set expires_at = '-infinity', replica_id = null, holder = '' where l.replica_id = $1
),
given_up as (
  update tenure.shard_lease as l set replica_id = null, holder = '', since = null, expires_at = '-infinity' where l.replica_id = $1
),
left_out as (
  delete from tenure.shard_member as m where m.replica_id = $1
)
update tenure.replica as r set lease_until = '-infinity', draining = true, backend_pids = '{}', backend_starts = '{}' where r.id = $1;

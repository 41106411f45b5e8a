-- Gives up all shards of a worker that a replica holds, and takes part no longer; how it fared stays to be seen for a while. $1 worker, $2
-- replica. Waits for fenced writes in progress.
with left_out as (
  update tenure.shard_member as m set expires_at = least(m.expires_at, now()) where m.worker = $1 and m.replica_id = $2
)
update tenure.shard_lease as l set replica_id = null, holder = '', since = null, expires_at = '-infinity'
where l.worker = $1 and l.replica_id = $2;

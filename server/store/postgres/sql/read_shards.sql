-- The division of a worker's shards, and the replicas that take part. $1 worker. Answers row sorts: 0 a range, in order; 1 a live
-- replica, by id. Locks nothing: who writes names what it read (apply_shards.sql).
select 0 as row_sort, l.first_shard, l.last_shard, l.term, coalesce(l.replica_id, 0) as replica_id, l.since, l.expires_at, l.failures,
       l.retry_at, l.last_error, now() as now
from tenure.shard_lease l where l.worker = $1
union all
select 1, 0, 0, 0, m.replica_id, null, null, 0, null, '', now() from tenure.shard_member m where m.worker = $1 and m.expires_at > now()
order by row_sort, first_shard, replica_id;

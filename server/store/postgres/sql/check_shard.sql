-- For work of a worker by shard that belongs to no queue: holds the term of shard 0 to the end of the transaction. $1 worker, $2 first
-- shard of the fence, $3 its term. No row: it is over, or another range has shard 0.
select 1 from tenure.shard_lease l where l.worker = $1 and l.first_shard = $2 and l.first_shard = 0 and l.term = $3 and l.replica_id is not null for share;

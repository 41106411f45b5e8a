-- Removes the leases by shard; nothing of a job depends on them.
drop function tenure.shard_of(int);
drop table tenure.shard_member, tenure.shard_lease;

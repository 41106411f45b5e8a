-- Locks unique keys, in their order, to the end of the transaction; who holds them is read by a later statement (unique_holders.sql), whose
-- snapshot is newer than the wait. $1 queue, $2 names, sorted and distinct. Waits up to lock_timeout. Fewer rows than names: one has been pruned since
-- unique_begin.sql. Primary key of tenure.unique_key.
select k.name from unnest($2::text[]) with ordinality as i (name, ord)
cross join lateral (select k.name from tenure.unique_key k where k.queue_id = $1 and k.name = i.name for update) k;

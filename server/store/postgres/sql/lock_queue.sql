-- Waits for the claims of a queue that are under way, and holds off new ones until the transaction ends. $1 queue.
select pg_advisory_xact_lock(2120, $1);

-- Held by a claim to its end, so that SetPaused (lock_queue.sql) can wait for claims under way. $1 queue. In memory, no row is touched.
select pg_advisory_xact_lock_shared(2120, $1);

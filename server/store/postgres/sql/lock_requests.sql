-- Holds the request ids of claims until the transaction ends, so that a repeat waits for its original. $1 request ids (sorted). In
-- memory, no row is touched; ids that collide wait for each other and no harm is done.
select pg_advisory_xact_lock(hashtextextended(i.request_id, 2123)) from unnest($1::text[]) as i (request_id);

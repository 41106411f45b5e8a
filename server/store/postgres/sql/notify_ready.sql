-- Tells the replicas that listen that something has become ready. $1 the replica that tells it.
select pg_notify('tenure_ready', $1::int::text);

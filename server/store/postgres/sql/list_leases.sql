-- All leases that a replica granted, by the index job_leased. $1 replica.
select j.queue_id, j.id, j.token, extract(epoch from j.lease_until - now())::float8 as remaining
from tenure.job j where j.state = 4 and j.replica_id = $1;

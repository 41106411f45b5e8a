-- Leases granted by replicas whose own lease ran out, by the index job_leased. $1 limit. Those that ended first.
select j.queue_id, j.id, j.token, extract(epoch from j.lease_until - now())::float8 as remaining
from tenure.replica r
cross join lateral (
  select j.* from tenure.job j where j.state = 4 and j.replica_id = r.id order by j.id
) j
where r.lease_until < now()
order by j.lease_until limit $1;

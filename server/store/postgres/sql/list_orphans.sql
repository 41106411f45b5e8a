-- Leases granted by replicas whose own lease ran out, by the index job_leased. $1 limit. Those that ended first.
-- None while no replica has told that it lives within half of its own lease: then all were cut off together, and the outage in which
-- these leases ran out has not been written down yet (a replica does that before its next heartbeat). The last column is the
-- time as of which this holds.
select j.queue_id, j.id, j.token, extract(epoch from j.lease_until - now())::float8 as remaining, now() as as_of
from tenure.replica r
cross join lateral (
  select j.* from tenure.job j where j.state = 4 and j.replica_id = r.id order by j.id
) j
where r.lease_until < now()
  and exists (select 1 from tenure.replica a where a.lease_until > now() and now() - a.heartbeat_at < (a.lease_until - a.heartbeat_at) / 2)
order by j.lease_until limit $1;

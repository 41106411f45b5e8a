-- Leases granted by replicas whose own lease ran out, of the queues of a range of shards, a page of grants: $1 grants
-- after this, $2 so many, $3 first and $4 last shard. A row with null id for a
-- grant none of whose leases stands any more.
-- None while no replica has told that it lives within half of its own lease: then all were cut off together, and the outage in which
-- these leases ran out has not been written down yet (a replica does that before its next heartbeat). The last column is the
-- time as of which this holds.
select g.id as grant_id, j.queue_id, j.id, j.token, extract(epoch from j.lease_until - now())::float8 as remaining, now() as as_of
from (
  select g.* from tenure.replica r
  cross join lateral (
    select g.* from tenure.lease_grant g where g.replica_id = r.id and g.id > $1 and tenure.shard_of(g.queue_id) between $3 and $4 order by g.id limit $2
  ) g
  where r.lease_until < now()
    and exists (select 1 from tenure.replica a where a.lease_until > now() and now() - a.heartbeat_at < (a.lease_until - a.heartbeat_at) / 2)
  order by g.id limit $2
) g
left join lateral (
  select j.* from unnest(g.ids, g.tokens) as i (id, token)
  cross join lateral (
    select j.* from tenure.job j where j.id = i.id and j.queue_id = g.queue_id and j.token = i.token and (j.state + 0) = 4 limit 1
  ) j
) j on true
order by g.id;

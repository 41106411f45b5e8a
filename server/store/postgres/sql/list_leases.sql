-- The leases of those grants of a replica that it does not know. $1 replica, $2 grants that it knows. A row with null id for a grant
-- none of whose leases stands any more.
select g.id as grant_id, j.queue_id, j.id, j.token, extract(epoch from j.lease_until - now())::float8 as remaining
from tenure.lease_grant g
left join lateral (
  select j.* from unnest(g.ids, g.tokens) as i (id, token)
  cross join lateral (
    select j.* from tenure.job j where j.id = i.id and j.queue_id = g.queue_id and j.token = i.token and (j.state + 0) = 4 limit 1
  ) j
) j on true
where g.replica_id = $1 and g.id <> all ($2::bigint[]);

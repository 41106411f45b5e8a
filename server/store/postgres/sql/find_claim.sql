-- The leases that a claim with this request id was given and that still stand. $1 request id. One row with null id if the request
-- is known and holds nothing any more; no row if it is not known (or its window is over). lock_requests.sql comes before, in an
-- earlier statement, so that this one's snapshot sees what it waited for.
select g.request_id, j.*, extract(epoch from j.lease_until - now())::float8 as remaining, tenure.today() as today
from tenure.lease_grant g
left join lateral (
  select j.* from unnest(g.ids, g.tokens, g.secrets) as i (id, token, secret)
  cross join lateral (
    select j.* from tenure.job j
    where j.id = i.id and j.queue_id = g.queue_id and j.token = i.token and j.token_secret = i.secret and (j.state + 0) = 4 limit 1
  ) j
) j on true
where g.request_id = $1 and g.expires_at > now();

-- The leases that a claim with this request id was given and that still stand. $1 request id. One row with null id if the request
-- is known and holds nothing any more; no row if it is not known (or its window is over).
select r.request_id, j.*, extract(epoch from j.lease_until - now())::float8 as remaining, tenure.today() as today
from tenure.claim_request r
left join lateral (
  select j.* from tenure.claim_grant g
  cross join lateral (
    select j.* from tenure.job j
    where j.id = g.id and j.queue_id = g.queue_id and j.token = g.token and j.token_secret = g.token_secret and (j.state + 0) = 4 limit 1
  ) j
  where g.request_id = r.request_id
) j on true
where r.request_id = $1 and r.expires_at > now();

-- Records which leases claims with request ids were given. $1 queue, one array element per lease: $2 request id, $3 id, $4 token
-- number, $5 secret; one per request: $6 id, $7 how long to keep it, in microseconds. A claim that got nothing records nothing.
with request as (
  insert into tenure.claim_request as r (request_id, expires_at)
  select i.request_id, now() + i.keep_us * interval '1 microsecond' from unnest($6::text[], $7::bigint[]) as i (request_id, keep_us)
  on conflict (request_id) do update set expires_at = excluded.expires_at
)
insert into tenure.claim_grant as g (request_id, id, queue_id, token, token_secret)
select i.request_id, i.id, $1, i.token, i.secret
from unnest($2::text[], $3::bigint[], $4::int[], $5::bigint[]) as i (request_id, id, token, secret)
on conflict (request_id, id) do update set token = excluded.token, token_secret = excluded.token_secret;

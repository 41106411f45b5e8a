-- Records which leases a claim with a request id was given. $1 queue, $2 request ids, $3 ids, $4 token numbers, $5 secrets.
insert into tenure.claim_grant as g (request_id, id, queue_id, token, token_secret)
select i.request_id, i.id, $1, i.token, i.secret
from unnest($2::text[], $3::bigint[], $4::int[], $5::bigint[]) as i (request_id, id, token, secret);

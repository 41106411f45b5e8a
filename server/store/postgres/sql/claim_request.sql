-- Enters the request ids of claims before anything is claimed for them. $1 request ids, $2 how long to keep each, in
-- microseconds. Answers those that are new: for the others an earlier claim has answered, or is about to. Waits for a
-- transaction that has entered the same id and not committed.
insert into tenure.claim_request as r (request_id, expires_at)
select i.request_id, now() + i.keep_us * interval '1 microsecond'
from unnest($1::text[], $2::bigint[]) as i (request_id, keep_us) order by i.request_id
on conflict (request_id) do nothing
returning r.request_id;

-- Those request ids that an earlier claim has been answered under, within their windows. $1 request ids. lock_requests.sql comes before, in
-- an earlier statement, so that this one's snapshot sees what it waited for.
select r.request_id from tenure.claim_request r where r.request_id = any ($1::text[]) and r.expires_at > now();

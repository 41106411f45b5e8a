-- Those request ids that an earlier claim has been answered under, within their windows; the others are free again. $1 request ids.
-- lock_requests.sql comes before, in an earlier statement, so that this one's snapshot sees what it waited for.
with freed as (
  update tenure.lease_grant as g set request_id = null where g.request_id = any ($1::text[]) and g.expires_at <= now()
)
select g.request_id from tenure.lease_grant g where g.request_id = any ($1::text[]) and g.expires_at > now();

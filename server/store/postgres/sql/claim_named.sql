-- Takes exactly the given jobs of one queue, if they are ready. $1 queue, $2 replica, $3 worker, $4 lease in microseconds,
-- $5 ids (sorted), $6 secrets and $7 days of enqueue (one per id), $8 request id or NULL; it may be repeated for one lease.
-- $9 byte budget (tenure.reply_size): those beyond it, in the order of ids, are left, but for the first. unique_violation: the request id has
-- been used. What is not answered was not got: find_live.sql says why; `cut`: or the budget.
with locked as materialized (
  select j.id, j.size from unnest($5::bigint[], $7::int[]) as i (id, day)
  cross join lateral (
    select j.id, tenure.reply_size(j) as size from tenure.job j
    where j.id = i.id and j.queue_id = $1 and j.day = i.day and (j.state + 0) = 3 and (j.expires_at is null or j.expires_at > now() or j.started_at is not null)
    for update skip locked
  ) j
),
fitting as materialized (
  select w.id from (select l.id, sum(l.size) over in_order as total, row_number() over in_order as n from locked l
                    window in_order as (order by l.id rows unbounded preceding)) w
  where w.total <= $9 or w.n = 1
),
leased as (
  update tenure.job as j
  set state = 4, attempt = j.attempt + 1, token = j.token + 1, token_secret = ($6::bigint[])[width_bucket(j.id, $5::bigint[])],
      worker = $3, lease_us = $4::bigint, lease_until = now() + $4::bigint * interval '1 microsecond', leased_at = now(), updated_at = now(),
      started_at = coalesce(j.started_at, now()), progress = null, progress_message = null
  where j.queue_id = $1 and j.id = any (array(select f.id from fitting f))
    and not (select q.paused from tenure.queue q where q.id = $1)
  returning j.*
),
granted as (
  insert into tenure.lease_grant as g (replica_id, queue_id, request_id, expires_at, ids, tokens, secrets)
  select $2, $1, $8::text, now() + case when $8::text is null then 0 else $4::bigint end * interval '1 microsecond',
         array_agg(l.id), array_agg(l.token), array_agg(l.token_secret)
  from leased l having count(*) > 0
  returning g.id
),
counted as (
  insert into tenure.event as e (slot, queue_id, type, ready, leased)
  select tenure.event_slot(), $1, 2, -count(*), count(*) from leased having count(*) > 0
)
select l.*, tenure.today() as today, g.id as grant_id, (select count(*) from fitting) < (select count(*) from locked) as cut
from leased l cross join granted g;

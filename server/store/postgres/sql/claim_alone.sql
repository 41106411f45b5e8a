-- claim.sql for the usual case: nobody else is expected to hold a row in the way, there are no single ids to look at again, and what
-- waits fits into the byte budget. Where that does not hold it takes nothing and says so, and claim.sql claims: it fails with
-- lock_not_available if anybody holds a row, and answers row sort 5 if the budget does not suffice for all that was read. So nothing can have
-- been passed over, and it need not be looked for.
-- $1 queue, $2 replica, $3 priorities, $4/$5 after (rank, id), $6/$7 up to (rank, id), then one array element per slot: $8 worker (index into
-- $11, from 1), $9 lease in microseconds, $10 secret; $11 worker names, $12 byte budget; $13 request (index into $14, from 1; 0: none)
-- of each slot; $14 request ids, $15 how long each may be repeated, in microseconds; $16 uniform: whether all slots have the one worker, lease
-- and request of the first element.
-- Reads the index job_ready beyond the cursors, as claim.sql does and for the reasons given there. The slots go to the jobs in the order of
-- their ids. Answers rows of these sorts (row_sort): 0 a leased job; 2 what was read of a stretch in one rank (range_no from 1, number of keys,
-- rank, last id); 3 the queue is paused: nothing was read; 4 which row of tenure.lease_grant (id) holds the leases of which request (kind);
-- 5 see above. `more`: claim_details.sql has what is not answered here. unique_violation: a request id has been used.
with locked as materialized (
  select r.range_no, j.*
  from unnest($3::smallint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])
       with ordinality as r (priority, after_rank, after_id, upto_rank, upto_id, range_no)
  cross join lateral (
    select c.* from (
      select j.rank, j.id, tenure.reply_size(j) as size, coalesce(j.expires_at <= now() and j.started_at is null, false) as expired
      from tenure.job j
      where j.queue_id = $1 and j.place = 3 and j.priority = r.priority
        and j.rank = r.upto_rank and j.id > r.after_id and j.id <= r.upto_id and (j.state + 0) = 3
      order by j.rank, j.id limit cardinality($10::bigint[])
      for update nowait
    ) c
    where r.after_rank = r.upto_rank
    union all
    select o.* from (
      select j.rank, j.id, tenure.reply_size(j) as size, coalesce(j.expires_at <= now() and j.started_at is null, false) as expired
      from tenure.job j
      where j.queue_id = $1 and j.place = 3 and j.priority = r.priority
        and (j.rank, j.id) > (r.after_rank, r.after_id) and j.rank <= r.upto_rank and (j.state + 0) = 3
      order by j.rank, j.id limit cardinality($10::bigint[])
      for update nowait
    ) o
    where r.after_rank <> r.upto_rank
  ) j
  where not (select q.paused from tenure.queue q where q.id = $1)
  limit cardinality($10::bigint[])
),
pick as materialized (
  select case when sum(l.size) <= $12 or count(*) = 1 then array_agg(l.id order by l.id) end as ids, count(*) as jobs
  from locked l where not l.expired
),
leased as (
  update tenure.job as j
  set state = 4, attempt = j.attempt + 1, token = j.token + 1,
      token_secret = ($10::bigint[])[width_bucket(j.id, p.ids)],
      worker = ($11::text[])[($8::int[])[case when $16::boolean then 1 else width_bucket(j.id, p.ids) end]],
      lease_us = ($9::bigint[])[case when $16 then 1 else width_bucket(j.id, p.ids) end],
      lease_until = now() + ($9::bigint[])[case when $16 then 1 else width_bucket(j.id, p.ids) end] * interval '1 microsecond',
      leased_at = now(), updated_at = now(), started_at = coalesce(j.started_at, now()), progress = null, progress_message = null
  from pick p
  where j.queue_id = $1 and j.id = any (p.ids)
  returning j.id, j.day, j.kind, j.priority, j.tenant, j.attempt, j.failures, j.crashes, j.releases, j.snoozes, j.token,
    j.token_secret, j.due_at, j.created_at, j.started_at, j.leased_at, j.payload, j.payload_day, j.content_type, j.headers, j.effect_key,
    j.idempotency_key,
    num_nonnulls(j.expires_at, j.max_attempts, j.crash_budget, j.backoff_initial_us, j.error_message, j.retry_of) > 0 as more,
    ($13::int[])[case when $16 then 1 else width_bucket(j.id, p.ids) end] as request
),
granted as (
  insert into tenure.lease_grant as g (replica_id, queue_id, request_id, expires_at, ids, tokens, secrets)
  select $2, $1, ($14::text[])[l.request], now() + coalesce(($15::bigint[])[l.request], 0) * interval '1 microsecond',
         array_agg(l.id), array_agg(l.token), array_agg(l.token_secret)
  from leased l group by l.request
  returning g.id, g.request_id
),
counted as (
  insert into tenure.event as e (slot, queue_id, type, ready, leased)
  select tenure.event_slot(), $1, 2, -count(*), count(*) from leased having count(*) > 0
)
select 0 as row_sort, null::bigint as range_no, null::bigint as keys, null::bigint as last_rank, tenure.today() as today, 4::smallint as state,
       l.id, l.day, l.kind, l.priority, l.tenant, l.attempt, l.failures, l.crashes, l.releases, l.snoozes, l.token, l.token_secret, l.due_at,
       l.created_at, l.started_at, l.leased_at, l.payload, l.payload_day, l.content_type, l.headers, l.effect_key, l.idempotency_key, l.more
from leased l
union all
select 2, l.range_no, count(*), l.rank, null, null, max(l.id), null, null, null, null, null, null, null, null, null, null, null, null, null, null,
       null, null, null, null, null, null, null, null
from locked l group by l.range_no, l.rank
union all
select case when q.paused then 3 else 5 end, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
       null, null, null, null, null, null, null, null, null, null
from tenure.queue q where q.id = $1 and (q.paused or (select p.ids is null and p.jobs > 0 from pick p))
union all
select 4, null, null, null, null, null, g.id, null, g.request_id, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
       null, null, null, null, null
from granted g;

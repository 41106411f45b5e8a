-- Takes ready jobs of one queue under leases: reads the given stretches of the index job_ready beyond the cursors (and single ids to
-- look at again), locks what nobody else has locked, and leases it.
-- $1 queue, $2 replica, $3 priorities, $4/$5 after (rank, id), $6/$7 up to (rank, id), $8 ids to look at again, then one array
-- element per slot: $9 worker (index into $12, from 1), $10 lease in microseconds, $11 secret; $12 worker names, $13 byte budget (tenure.reply_size);
-- $14 request (index into $15, from 1; 0: none) of each slot; $15 request ids, $16 how long each may be repeated, in microseconds;
-- $17 uniform: whether all slots have the one worker, lease and request of the first element. claim_alone.sql is tried first.
-- The slots go to the jobs in the order of their ids. Answers rows of these sorts (row_sort): 0 a leased job; 1 an id that was ready but not got (locked
-- by another): look at it again; 2 how far a stretch was read (range_no from 1, number of keys, last key);
-- 3 the queue is paused: nothing was read; 4 which row of tenure.lease_grant (id) holds the leases of which request (kind);
-- 5 the byte budget ended the reading.
-- `more`: claim_details.sql has what is not answered here. unique_violation: a request id has been used.
-- The rank of a ready job never changes, so the last key that was locked is the last that was read.
-- An index scan does not end at (rank, id) <= (a, b) while the rank is the same: it would read to the end of the queue. So a stretch within
-- one rank (what an event tells, mostly) is read by its ids, and another to the end of its last rank, which may be more than was asked for.
-- width_bucket finds a row's slot by binary search over the sorted ids: a join would let the planner scan the table when its
-- statistics are stale.
with locked as materialized (
  (select 0::bigint as range_no, j.*
   from unnest($8::bigint[]) as r (id)
   cross join lateral (
     select j.priority, j.rank, j.id, tenure.reply_size(j) as size, coalesce(j.expires_at <= now() and j.started_at is null, false) as expired
     from tenure.job j where j.id = r.id and j.queue_id = $1 and (j.state + 0) = 3
     for update skip locked
   ) j
   where not (select q.paused from tenure.queue q where q.id = $1))
  union all
  (select r.range_no, j.*
   from unnest($3::smallint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])
        with ordinality as r (priority, after_rank, after_id, upto_rank, upto_id, range_no)
   cross join lateral (
     select c.* from (
       select j.priority, j.rank, j.id, tenure.reply_size(j) as size, coalesce(j.expires_at <= now() and j.started_at is null, false) as expired
       from tenure.job j
       where j.queue_id = $1 and j.place = 3 and j.priority = r.priority
         and j.rank = r.upto_rank and j.id > r.after_id and j.id <= r.upto_id and (j.state + 0) = 3
       order by j.rank, j.id limit cardinality($11::bigint[])
       for update skip locked
     ) c
     where r.after_rank = r.upto_rank
     union all
     select o.* from (
       select j.priority, j.rank, j.id, tenure.reply_size(j) as size, coalesce(j.expires_at <= now() and j.started_at is null, false) as expired
       from tenure.job j
       where j.queue_id = $1 and j.place = 3 and j.priority = r.priority
         and (j.rank, j.id) > (r.after_rank, r.after_id) and j.rank <= r.upto_rank and (j.state + 0) = 3
       order by j.rank, j.id limit cardinality($11::bigint[])
       for update skip locked
     ) o
     where r.after_rank <> r.upto_rank
   ) j
   where not (select q.paused from tenure.queue q where q.id = $1))
  limit cardinality($11::bigint[])
),
-- The last row that is within the byte budget, in the order of reading, if there is one beyond it: what comes after counts as not
-- read. One job is always within.
cut as materialized (
  select w.range_no, w.rank, w.id
  from (select l.range_no, l.rank, l.id, coalesce(sum(l.size) filter (where not l.expired) over in_order, 0) as total,
               count(*) filter (where not l.expired) over in_order as jobs
        from locked l where (select sum(f.size) from locked f where not f.expired) > $13
        window in_order as (order by l.range_no, l.rank, l.id rows unbounded preceding)) w
  where w.total <= $13 or w.jobs <= 1
  order by w.range_no desc, w.rank desc, w.id desc limit 1
),
reach as materialized (
  select distinct on (l.range_no) l.range_no, count(*) over (partition by l.range_no) as keys, l.rank, l.id
  from locked l where ((l.range_no, l.rank, l.id) <= (select c.range_no, c.rank, c.id from cut c)) is not false
  order by l.range_no, l.rank desc, l.id desc
),
-- The stretch in which all slots were filled, or the budget spent; the ones before it were read to their ends, the ones after it not at all.
stop as materialized (
  select max(r.range_no) as range_no from reach r having sum(r.keys) >= cardinality($11::bigint[]) or exists (select 1 from cut)
),
stretch as materialized (
  select r.priority, r.after_rank, r.after_id, case when r.range_no = s.range_no then e.rank else r.upto_rank end as upto_rank,
         case when r.range_no = s.range_no then e.id else r.upto_id end as upto_id
  from unnest($3::smallint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])
       with ordinality as r (priority, after_rank, after_id, upto_rank, upto_id, range_no)
  left join stop s on true
  left join reach e on e.range_no = r.range_no
  where s.range_no is null or r.range_no <= s.range_no
),
-- What was ready in what was read. The limit keeps the stretches from being joined with the whole queue.
seen as materialized (
  select j.id, j.priority from unnest($8::bigint[]) as r (id)
  cross join lateral (
    select j.id, j.priority from tenure.job j where j.id = r.id and j.queue_id = $1 and (j.state + 0) = 3 limit 1
  ) j
  where not (select q.paused from tenure.queue q where q.id = $1)
  union all
  select j.id, r.priority from stretch r
  cross join lateral (
    select c.* from (
      select j.id from tenure.job j
      where j.queue_id = $1 and j.place = 3 and j.priority = r.priority
        and j.rank = r.after_rank and j.id > r.after_id and j.id <= r.upto_id and (j.state + 0) = 3
      limit 9223372036854775807) c
    where r.after_rank = r.upto_rank
    union all
    select f.* from (
      select j.id from tenure.job j
      where j.queue_id = $1 and j.place = 3 and j.priority = r.priority
        and j.rank = r.after_rank and j.id > r.after_id and (j.state + 0) = 3
      limit 9223372036854775807) f
    where r.after_rank < r.upto_rank
    union all
    select m.* from (
      select j.id from tenure.job j
      where j.queue_id = $1 and j.place = 3 and j.priority = r.priority
        and j.rank > r.after_rank and j.rank < r.upto_rank and (j.state + 0) = 3
      limit 9223372036854775807) m
    where r.after_rank < r.upto_rank
    union all
    select l.* from (
      select j.id from tenure.job j
      where j.queue_id = $1 and j.place = 3 and j.priority = r.priority
        and j.rank = r.upto_rank and j.id <= r.upto_id and (j.state + 0) = 3
      limit 9223372036854775807) l
    where r.after_rank < r.upto_rank
  ) j
  where not (select q.paused from tenure.queue q where q.id = $1)
),
pick as materialized (
  select array_agg(distinct l.id order by l.id) as ids
  from locked l where not l.expired and ((l.range_no, l.rank, l.id) <= (select c.range_no, c.rank, c.id from cut c)) is not false
),
leased as (
  update tenure.job as j
  set state = 4, attempt = j.attempt + 1, token = j.token + 1,
      token_secret = ($11::bigint[])[width_bucket(j.id, (select p.ids from pick p))],
      worker = ($12::text[])[($9::int[])[case when $17::boolean then 1 else width_bucket(j.id, (select p.ids from pick p)) end]],
      lease_us = ($10::bigint[])[case when $17 then 1 else width_bucket(j.id, (select p.ids from pick p)) end],
      lease_until = now() + ($10::bigint[])[case when $17 then 1 else width_bucket(j.id, (select p.ids from pick p)) end] * interval '1 microsecond',
      leased_at = now(), updated_at = now(), started_at = coalesce(j.started_at, now()), progress = null, progress_message = null
  where j.queue_id = $1 and j.id = any ((select p.ids from pick p)::bigint[])
  returning j.id, j.day, j.kind, j.priority, j.tenant, j.attempt, j.failures, j.crashes, j.releases, j.snoozes, j.token,
    j.token_secret, j.due_at, j.created_at, j.started_at, j.leased_at, j.payload, j.payload_day, j.content_type, j.headers, j.effect_key,
    j.idempotency_key,
    num_nonnulls(j.expires_at, j.max_attempts, j.crash_budget, j.backoff_initial_us, j.error_message, j.retry_of) > 0 as more
),
granted as (
  insert into tenure.lease_grant as g (replica_id, queue_id, request_id, expires_at, ids, tokens, secrets)
  select $2, $1, ($15::text[])[x.request], now() + coalesce(($16::bigint[])[x.request], 0) * interval '1 microsecond',
         array_agg(x.id), array_agg(x.token), array_agg(x.token_secret)
  from (select l.id, l.token, l.token_secret, ($14::int[])[case when $17 then 1 else width_bucket(l.id, (select p.ids from pick p)) end] as request from leased l) x
  group by x.request
  returning g.id, g.request_id
),
counted as (
  insert into tenure.event as e (slot, queue_id, type, ready, leased)
  select tenure.event_slot(), $1, 2, -count(*), count(*) from leased having count(*) > 0
)
select 0 as row_sort, null::bigint as range_no, null::bigint as keys, null::bigint as last_rank, tenure.today() as today, 4::smallint as state, l.*
from leased l
union all
select 1, null, null, null, null, null, s.id, null, null, s.priority, null, null, null, null, null, null, null, null, null, null, null, null, null,
       null, null, null, null, null, null
from seen s
where s.id not in (select u.id from unnest((select p.ids from pick p)) as u (id)) and s.id not in (select l.id from locked l where l.expired)
union all
select 2, r.range_no, r.keys, r.rank, null, null, r.id, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
       null, null, null, null, null, null
from reach r
union all
select 3, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
       null, null, null, null
from tenure.queue q where q.id = $1 and q.paused
union all
select 4, null, null, null, null, null, g.id, null, g.request_id, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
       null, null, null, null, null
from granted g
union all
select 5, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
       null, null, null, null
from cut c;

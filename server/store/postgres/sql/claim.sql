-- Takes ready jobs of one queue under leases: reads the given stretches of the index job_ready beyond the cursors (and single ids to
-- look at again), locks what it can with SKIP LOCKED, and leases it.
-- $1 queue, $2 replica, $3 priorities, $4/$5 after (rank, id), $6/$7 up to (rank, id), $8 ids to look at again, then one array
-- element per slot: $9 worker (index into $12, from 1), $10 lease in microseconds, $11 secret; $12 worker names, $13 byte budget.
-- Answers rows of three sorts (row_sort): 0 a leased job; 1 an id that was ready but not got (locked by another, or over the
-- budget): look at it again; 2 how far a stretch was read (range_no from 1, number of keys, last key);
-- 3 the queue is paused: nothing was read.
-- `limit 1` keeps the look at one id from being made a join with the whole table. width_bucket finds a row's slot by binary search over the sorted ids: a join would let the planner scan the table when its
-- statistics are stale.
with candidate as materialized (
  (select 0::bigint as range_no, j.priority, j.rank, j.id
   from unnest($8::bigint[]) as r (id)
   cross join lateral (
     select j.priority, j.rank, j.id from tenure.job j where j.id = r.id and j.queue_id = $1 and (j.state + 0) = 3 limit 1
   ) j
   where not (select q.paused from tenure.queue q where q.id = $1))
  union all
  (select r.range_no, r.priority, c.rank, c.id
   from unnest($3::smallint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])
        with ordinality as r (priority, after_rank, after_id, upto_rank, upto_id, range_no)
   cross join lateral (
     select j.rank, j.id from tenure.job j
     where j.queue_id = $1 and j.state = 3 and j.priority = r.priority
       and (j.rank, j.id) > (r.after_rank, r.after_id) and (j.rank, j.id) <= (r.upto_rank, r.upto_id)
     order by j.rank, j.id limit cardinality($9::int[])
   ) c
   where not (select q.paused from tenure.queue q where q.id = $1))
  limit cardinality($9::int[])
),
locked as materialized (
  select c.range_no, c.priority, c.rank, j.*
  from candidate c
  cross join lateral (
    select j.id, j.payload_size, coalesce(j.expires_at <= now() and j.started_at is null, false) as expired
    from tenure.job j where j.id = c.id and j.queue_id = $1 and (j.state + 0) = 3
    for update skip locked
  ) j
),
fitting as materialized (
  select w.id from (
    select l.id, sum(l.payload_size) over in_order as total, row_number() over in_order as n
    from locked l where not l.expired
    window in_order as (order by l.priority desc, l.rank, l.id rows unbounded preceding)
  ) w where w.total <= $13 or w.n = 1
),
pick as materialized (select array_agg(f.id order by f.id) as ids from fitting f),
leased as (
  update tenure.job as j
  set state = 4, attempt = j.attempt + 1, token = j.token + 1, replica_id = $2,
      token_secret = ($11::bigint[])[width_bucket(j.id, (select p.ids from pick p))],
      worker = ($12::text[])[($9::int[])[width_bucket(j.id, (select p.ids from pick p))]],
      lease_us = ($10::bigint[])[width_bucket(j.id, (select p.ids from pick p))],
      lease_until = now() + ($10::bigint[])[width_bucket(j.id, (select p.ids from pick p))] * interval '1 microsecond',
      leased_at = now(), updated_at = now(), started_at = coalesce(j.started_at, now()), progress = null, progress_message = null
  where j.queue_id = $1 and j.id = any ((select p.ids from pick p)::bigint[])
  returning width_bucket(j.id, (select p.ids from pick p)) as slot, j.id, j.day, j.kind, j.priority, j.tenant, j.attempt,
    j.failures, j.crashes, j.releases, j.snoozes, j.max_attempts, j.crash_budget, j.token, j.token_secret, j.worker, j.lease_us,
    j.lease_until, j.leased_at, j.due_at, j.expires_at, j.created_at, j.updated_at, j.started_at, j.payload, j.payload_day,
    j.content_type, j.headers, j.backoff_initial_us, j.backoff_multiplier, j.backoff_max_us, j.error_message, j.error_type,
    j.error_detail, j.error_attempt, j.error_at, j.effect_key, j.retry_of, j.idempotency_key
),
counted as (
  insert into tenure.event as e (slot, queue_id, type, ready, leased)
  select tenure.event_slot(), $1, 2, -count(*), count(*) from leased having count(*) > 0
)
select 0 as row_sort, null::bigint as range_no, null::bigint as keys, null::bigint as last_rank, tenure.today() as today, 4::smallint as state, l.* from leased l
union all
select 1, null, null, null, null, null, null, c.id, null, null, c.priority, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
       null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null
from candidate c
where c.id not in (select f.id from fitting f) and c.id not in (select l.id from locked l where l.expired)
union all
(select distinct on (c.range_no) 2, c.range_no, count(*) over (partition by c.range_no), c.rank, null, null, null, c.id, null, null, null, null, null, null,
       null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
       null, null, null, null, null, null, null, null, null, null, null
from candidate c order by c.range_no, c.rank desc, c.id desc)
union all
select 3, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null
from tenure.queue q where q.id = $1 and q.paused;

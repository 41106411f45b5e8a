-- Moves the next scheduled and ready jobs of a move: each leaves tenure.job for history as cancelled, and goes on under a new id in the other queue
-- with its counters and its due time, in one statement with the link from the old id, the event of its end (for targets that want it) and the
-- move's own counts. $1, $2 name and term of
-- the leader: nothing is written once the term is over; $3 move, $4 most jobs, $5 most jobs to read. Locks the move, and the jobs that it moves,
-- passing over those that somebody holds. Reads the primary key of tenure.job beyond the cursor, jobs of other queues among them.
-- What has a gate to pass in the other queue is blocked there; an event says at which gates of both queues to look, and for which jobs others wait.
-- Row sorts: 0 what became ready; 1 how many were moved, how long to wait, has it ended; 2 how many are scheduled, and when the
-- first of them is due.
with in_term as materialized (
  select true as yes from tenure.leader l where l.worker = $1 and l.term = $2 for share
),
move as materialized (
  select m.*, greatest(m.used_until, now() - interval '1 second') as used from tenure.move m
  where m.id = $3 and m.state = 1 and m.source = 2 and exists (select 1 from in_term)
  for update
),
flying as materialized (
  select coalesce(array_agg(f.id order by f.id), '{}') as ids
  from move m
  cross join unnest(m.in_flight) as f (id)
  cross join lateral (select 1 from tenure.job j where j.id = f.id and j.queue_id = m.to_queue_id limit 1) j
),
allowed as materialized (
  select greatest(0, least($4::bigint, coalesce(floor(m.rate * extract(epoch from now() - m.used))::bigint, $4),
                           coalesce(m.max_in_flight - cardinality(f.ids), $4))) as jobs
  from move m cross join flying f
),
page as materialized (
  select j.id, j.queue_id from tenure.job j
  where j.id > (select m.cursor_id from move m) and (select a.jobs from allowed a) > 0
  order by j.id limit $5
),
candidate as materialized (
  select p.id, p.queue_id, m.to_queue_id, m.kinds from page p join move m on m.from_queue_id = p.queue_id order by p.id
),
picked as materialized (
  select j.*, c.to_queue_id, (j.state + 0)::int as old_state,
         case when (j.state + 0) = 1 then 1 when tenure.first_gate(j.group_key, j.concurrency_keys, c.to_queue_id = any (array(select q.id from tenure.queue q where q.gated))) is null then 3 else 2 end as new_state
  from candidate c
  cross join lateral (
    select j.* from tenure.job j
    where j.id = c.id and j.queue_id = c.queue_id and (j.state + 0) in (1, 3) and (c.kinds = '{}' or j.kind = any (c.kinds))
    for update skip locked
  ) j
  limit (select a.jobs from allowed a)
),
fresh as materialized (
  select nextval('tenure.job_id') as new_id, p.*, l.data as large
  from picked p
  left join lateral (select l.data from tenure.payload l where l.id = p.id and l.day = p.payload_day limit 1) l on true
),
broken as materialized (
  select f.id from fresh f where f.payload_day is not null and f.large is null
),
claimed as (
  insert into tenure.forward as f (job_id, queue_id, job_day, to_job_id, to_queue_id, to_job_day, move_id, moved_at)
  select n.id, n.queue_id, n.day, n.new_id, n.to_queue_id, tenure.today(), $3, now() from fresh n
  where n.id not in (select b.id from broken b) order by n.id
  on conflict (job_id) do nothing
  returning f.job_id
),
won as materialized (
  select n.* from fresh n where n.id in (select c.job_id from claimed c)
),
removed as (
  delete from tenure.job as j where j.id = any (array(select w.id from won w))
),
kept as (
  insert into tenure.history as h (ended_on, id, queue_id, state, priority, day, attempt, failures, crashes, releases, snoozes,
    max_attempts, crash_budget, token, token_secret, settled_verb, worker, leased_at, due_at, expires_at, created_at, started_at,
    ended_at, kind, tenant, payload_size, payload, payload_day, content_type, headers, backoff_initial_us, backoff_multiplier,
    backoff_max_us, error_message, error_type, error_detail, error_attempt, error_at, effect_key, retry_of, idempotency_key,
    concurrency_keys, group_key, unique_name)
  select (now() at time zone 'utc')::date, w.id, w.queue_id, 8, w.priority, w.day, w.attempt, w.failures, w.crashes, w.releases, w.snoozes,
    w.max_attempts, w.crash_budget, w.token, w.token_secret, 5, w.worker, w.leased_at, w.due_at, w.expires_at, w.created_at, w.started_at,
    now(), w.kind, w.tenant, w.payload_size, w.payload, w.payload_day, w.content_type, w.headers, w.backoff_initial_us,
    w.backoff_multiplier, w.backoff_max_us, 'moved to ' || tenure.job_text(w.to_queue_id, tenure.today(), w.new_id), 'Moved', w.error_detail,
    w.error_attempt, now(), w.effect_key, w.retry_of, w.idempotency_key, w.concurrency_keys, w.group_key, w.unique_name
  from won w
),
inserted as (
  insert into tenure.job as j (id, queue_id, state, priority, rank, day, attempt, failures, crashes, releases, snoozes, max_attempts, crash_budget, due_at,
    expires_at, created_at, updated_at, started_at, kind, tenant, payload_size, payload, payload_day, content_type, headers, backoff_initial_us,
    backoff_multiplier, backoff_max_us, error_message, error_type, error_detail, error_attempt, error_at, effect_key, retry_of,
    concurrency_keys, group_key, gate)
  select w.new_id, w.to_queue_id, w.new_state, w.priority, 0, tenure.today(), w.attempt, w.failures, w.crashes, w.releases, w.snoozes, w.max_attempts,
    w.crash_budget, w.due_at,
    coalesce(w.expires_at, case when w.started_at is null
      then greatest(w.due_at, now()) + (select q.start_within_us from tenure.queue q where q.id = w.to_queue_id) * interval '1 microsecond' end),
    w.created_at, now(), w.started_at, w.kind, w.tenant, w.payload_size, w.payload,
    case when w.large is not null then tenure.today() end, w.content_type, w.headers, w.backoff_initial_us, w.backoff_multiplier, w.backoff_max_us,
    w.error_message, w.error_type, w.error_detail, w.error_attempt, w.error_at,
    coalesce(w.effect_key, tenure.job_text(w.queue_id, w.day, w.id)), tenure.job_text(w.queue_id, w.day, w.id), w.concurrency_keys, w.group_key,
    case when w.new_state = 2 then tenure.first_gate(w.group_key, w.concurrency_keys, true) end
  from won w
),
large as (
  insert into tenure.payload as p (day, id, queue_id, data)
  select tenure.today(), w.new_id, w.to_queue_id, w.large from won w where w.large is not null
),
range as materialized (
  select w.to_queue_id as queue_id, w.priority, 0::bigint as low_rank, min(w.new_id) as low_id, 0::bigint as high_rank, max(w.new_id) as high_id, count(*) as jobs
  from won w where w.new_state = 3 group by w.to_queue_id, w.priority
),
told as (
  insert into tenure.event as e (slot, queue_id, type, priority, low_rank, low_id, high_rank, high_id, ready, enqueued)
  select tenure.event_slot(), r.queue_id, 1, r.priority, r.low_rank, r.low_id, r.high_rank, r.high_id, r.jobs, r.jobs from range r
),
gone as (
  insert into tenure.event as e (slot, queue_id, type, scheduled, ready, cancelled)
  select tenure.event_slot(), w.queue_id, 2, -count(*) filter (where w.old_state = 1), -count(*) filter (where w.old_state = 3), count(*)
  from won w group by w.queue_id
),
held as (
  insert into tenure.event as e (slot, queue_id, type, blocked, enqueued)
  select tenure.event_slot(), w.to_queue_id, 2, count(*), count(*) from won w where w.new_state = 2 group by w.to_queue_id
),
asked as (
  insert into tenure.event as e (slot, queue_id, type, admit)
  select tenure.event_slot(), x.queue_id, 5, array_agg(distinct x.name) from (
    select w.to_queue_id as queue_id, n.name from won w cross join lateral unnest(array(select 'k' || k from unnest(w.concurrency_keys) as k) || coalesce(array['g' || w.group_key], '{}') || array['q']) as n (name)
    where w.new_state = 2
    union all
    select w.queue_id, n.name from won w cross join lateral unnest(array(select 'k' || k from unnest(w.concurrency_keys) as k) || coalesce(array['g' || w.group_key], '{}') || array['q']) as n (name)
    where w.gate is not null
    union all
    select w.queue_id, 'w' || w.id from won w where w.awaited
  ) x group by x.queue_id
),
outbound as (
  insert into tenure.outbox as o (slot, queue_id, state, job_id, job_day, kind, tenant, attempt, failures, crashes, created_at, started_at,
    ended_at, error_message, error_type, effect_key, retry_of, headers)
  select (select tenure.event_slot()), w.queue_id, 8, w.id, w.day, w.kind, w.tenant, w.attempt, w.failures, w.crashes, w.created_at, w.started_at,
    now(), 'moved to ' || tenure.job_text(w.to_queue_id, tenure.today(), w.new_id), 'Moved', w.effect_key, w.retry_of, w.headers
  from won w
  where (select bit_or(i.events) from tenure.outbox_interest i where i.queue_id = any (array[0, (select m.from_queue_id from move m)])) & 4 <> 0
),
later as (
  insert into tenure.event as e (slot, queue_id, type, scheduled, enqueued, due_at)
  select tenure.event_slot(), w.to_queue_id, 2, count(*), count(*), min(w.due_at) from won w where w.new_state = 1 group by w.to_queue_id
),
done as materialized (
  select (select count(*) from won) as moved, (select count(*) from broken) as failed, (select count(*) from page) as read,
         -- Not all of the page was looked at if the limit was reached.
         case when (select count(*) from picked) >= (select a.jobs from allowed a) then (select max(p.id) from picked p)
              else (select max(p.id) from page p) end as cursor_id,
         (select a.jobs from allowed a) > 0 and (select count(*) from page) = 0 as at_end
),
counted as (
  update tenure.move as m
  set moved = m.moved + d.moved,
      failed = case when d.at_end and v.moved_in_pass > 0 then 0 else m.failed + d.failed end,
      last_error = case when d.moved > 0 then '' when d.failed > 0 then 'the payload of a job is gone: was a partition dropped by hand?' else m.last_error end,
      cursor_id = case when d.at_end then 0 else coalesce(d.cursor_id, m.cursor_id) end,
      moved_in_pass = case when d.at_end then 0 else m.moved_in_pass + d.moved end,
      used_until = case when m.rate is null then now() else v.used + d.moved * interval '1 second' / m.rate end,
      in_flight = case when m.max_in_flight is null then '{}' else (select f.ids from flying f) || array(select w.new_id from won w order by w.new_id) end,
      state = case when d.at_end and v.moved_in_pass = 0 then 3 else m.state end,
      ended_at = case when d.at_end and v.moved_in_pass = 0 then now() end,
      updated_at = now()
  from done d cross join move v
  where m.id = v.id
  returning m.state, m.used_until, m.rate
)
select 0 as row_sort, r.queue_id, r.priority, r.low_rank, r.low_id, r.high_rank, r.high_id, r.jobs, null::float8 as seconds, false as ended, false as standing
from range r
union all
select 1, null, null, null, null, null, null, d.moved,
       -- Until the rate allows a tenth of a second's jobs, at least one; a tenth of a second where nothing is allowed; else at once.
       greatest(case when c.rate is not null
                     then extract(epoch from c.used_until + greatest(1, c.rate / 10.0) / c.rate * interval '1 second' - now()) else 0 end,
                case when a.jobs = 0 then 0.1 else 0 end)::float8,
       c.state <> 1, false
from done d cross join allowed a cross join counted c
union all
select 2, null, null, null, null, null, null, count(*), extract(epoch from min(w.due_at) - now())::float8, false, false
from won w where w.new_state = 1 having count(*) > 0;

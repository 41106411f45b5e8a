-- Moves the next jobs of a backlog that are neither leased nor suspended: each leaves tenure.job for history as cancelled, and goes on under a new id in the other queue with its
-- counters and its due time, in one statement with the link from the old id and the event of its end (for targets that want it). $1 the queue that they leave, $2 the other
-- one, $3 their kinds (empty: all), $4 read beyond this id, $5 most jobs to read, $6 most to move, $7 the move, which move_begin.sql has locked; $8 also those with unique keys. Locks the
-- jobs that it moves, passing over those that somebody holds, and then the unique keys that they take along. Reads the primary key of tenure.job, jobs of other queues among
-- them, and job_group.
-- What has a gate to pass in the other queue is blocked there, wherever it stood in its own; an event says at which gates of both queues to look, and for which jobs others
-- wait. Of a group the first job goes first: as long as one stays behind (it is leased, or somebody holds it) the later ones are held back. A job that waits for others goes on
-- waiting for them. A unique key that the job held goes along, unless a job of the other queue has it; whether that one still counts is seen in the snapshot, and a key that was
-- taken since then is left to its new holder.
-- Row sorts: 0 what became ready; 1 how many were moved, had no payload, were held back, how far was read (NULL: to the end), and the new ids; 2 how many are scheduled, and
-- when the first of them is due.
with page as materialized (
  select j.id, j.queue_id from tenure.job j where j.id > $4 order by j.id limit $5
),
candidate as materialized (
  select p.id from page p where p.queue_id = $1 order by p.id
),
locked as materialized (
  select j.* from candidate c
  cross join lateral (
    select j.* from tenure.job j
    where j.id = c.id and j.queue_id = $1 and (j.state + 0) in (1, 2, 3) and ($3::text[] = '{}' or j.kind = any ($3))
      and ($8::boolean or j.unique_name is null)
    for update skip locked
  ) j
  limit $6
),
behind as materialized (
  select g.group_key, f.id
  from (select distinct l.group_key from locked l where l.group_key is not null) g
  cross join lateral (
    select o.id from tenure.job o
    where o.queue_id = $1 and o.group_key = g.group_key and ($3::text[] = '{}' or o.kind = any ($3))
      and not o.id = any (array(select l.id from locked l))
    order by (o.id + 0) limit 1
  ) f
),
picked as materialized (
  select l.*, $2::int as to_queue_id, (l.state + 0)::int as old_state, (l.state + 0) = 2 and l.gate is null as waits,
         case when (l.state + 0) = 1 then 1 when (l.state + 0) = 2 and l.gate is null then 2
              when tenure.first_gate(l.group_key, l.concurrency_keys, (select q.gated from tenure.queue q where q.id = $2)) is null then 3 else 2 end as new_state
  from locked l
  where not exists (select 1 from behind b where b.group_key = l.group_key and b.id < l.id)
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
  select n.id, n.queue_id, n.day, n.new_id, n.to_queue_id, tenure.today(), $7, now() from fresh n
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
  insert into tenure.job as j (id, queue_id, state, place, priority, rank, day, attempt, failures, crashes, releases, snoozes, max_attempts, crash_budget, due_at,
    expires_at, created_at, updated_at, started_at, kind, tenant, payload_size, payload, payload_day, content_type, headers, backoff_initial_us,
    backoff_multiplier, backoff_max_us, error_message, error_type, error_detail, error_attempt, error_at, effect_key, retry_of,
    concurrency_keys, group_key, gate, unique_name)
  select w.new_id, w.to_queue_id, w.new_state, w.new_state, w.priority, 0, tenure.today(), w.attempt, w.failures, w.crashes, w.releases, w.snoozes, w.max_attempts,
    w.crash_budget, w.due_at,
    coalesce(w.expires_at, case when w.started_at is null and not w.waits
      then greatest(w.due_at, now()) + (select q.start_within_us from tenure.queue q where q.id = w.to_queue_id) * interval '1 microsecond' end),
    w.created_at, now(), w.started_at, w.kind, w.tenant, w.payload_size, w.payload,
    case when w.large is not null then tenure.today() end, w.content_type, w.headers, w.backoff_initial_us, w.backoff_multiplier, w.backoff_max_us,
    w.error_message, w.error_type, w.error_detail, w.error_attempt, w.error_at,
    coalesce(w.effect_key, tenure.job_text(w.queue_id, w.day, w.id)), tenure.job_text(w.queue_id, w.day, w.id), w.concurrency_keys, w.group_key,
    case when w.new_state = 2 and not w.waits then tenure.first_gate(w.group_key, w.concurrency_keys, true) end, w.unique_name
  from won w
),
waiting as materialized (
  select array_agg(w.id order by w.id) as ids, array_agg(w.new_id order by w.id) as new_ids from won w where w.waits
),
renamed as (
  update tenure.dependency as d
  set job_id = (select v.new_ids from waiting v)[width_bucket(d.job_id, (select v.ids from waiting v))], queue_id = $2
  where (d.job_id + 0) = any (array(select unnest(v.ids) from waiting v))
),
holding as materialized (
  select w.unique_name as name, w.new_id, k.held_until
  from won w
  cross join lateral (
    select k.held_until from tenure.unique_key k where k.queue_id = $1 and k.name = w.unique_name and k.job_id = w.id limit 1
  ) k
  where w.unique_name is not null
),
over as materialized (
  select k.job_id
  from holding h
  cross join lateral (select k.job_id, k.held_until from tenure.unique_key k where k.queue_id = $2 and k.name = h.name limit 1) k
  -- Not `not exists`, which may become a join with the whole table.
  where k.held_until <= now() and (select j.id from tenure.job j where j.id = k.job_id and j.queue_id = $2 limit 1) is null
),
taken as (
  insert into tenure.unique_key as k (queue_id, name, job_id, job_day, held_until)
  select $2, h.name, h.new_id, tenure.today(), h.held_until from holding h order by h.name
  on conflict (queue_id, name) do update
    set job_id = excluded.job_id, job_day = excluded.job_day, held_until = excluded.held_until
    where k.job_id = any (array(select o.job_id from over o))
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
  insert into tenure.event as e (slot, queue_id, type, scheduled, blocked, ready, cancelled)
  select tenure.event_slot(), w.queue_id, 2, -count(*) filter (where w.old_state = 1), -count(*) filter (where w.old_state = 2),
         -count(*) filter (where w.old_state = 3), count(*)
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
    where w.new_state = 2 and not w.waits
    union all
    select w.queue_id, n.name from won w cross join lateral unnest(array(select 'k' || k from unnest(w.concurrency_keys) as k) || coalesce(array['g' || w.group_key], '{}') || array['q']) as n (name)
    where w.gate is not null or w.group_key is not null
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
  where (select bit_or(i.events) from tenure.outbox_interest i where i.queue_id = any (array[0, $1])) & 4 <> 0
),
later as (
  insert into tenure.event as e (slot, queue_id, type, scheduled, enqueued, due_at)
  select tenure.event_slot(), w.to_queue_id, 2, count(*), count(*), min(w.due_at) from won w where w.new_state = 1 group by w.to_queue_id
)
select 0 as row_sort, r.queue_id, r.priority, r.low_rank, r.low_id, r.high_rank, r.high_id, r.jobs, null::float8 as seconds,
       null::bigint as failed, null::bigint as held, null::bigint as cursor_id, null::bigint[] as made
from range r
union all
select 1, null, null, null, null, null, null, (select count(*) from won), null,
       (select count(*) from broken), (select count(*) from locked) - (select count(*) from picked),
       -- Not all of the page was looked at if the limit was reached.
       case when (select count(*) from locked) >= $6 then (select max(l.id) from locked l) else (select max(p.id) from page p) end,
       array(select w.new_id from won w order by w.new_id)
union all
select 2, null, null, null, null, null, null, count(*), extract(epoch from min(w.due_at) - now())::float8, null, null, null, null
from won w where w.new_state = 1 having count(*) > 0;

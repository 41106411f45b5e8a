-- Moves the next dead letters of a move: each becomes a ready job (or a blocked one, if it has a gate to pass) with fresh budgets, in one statement with the link from the old
-- id. $1 the queue in which they died, $2 the other one, $3 their kinds (empty: all), $4 read beyond this id, $5 most to read, $6 most to move, $7 the move, which move_begin.sql
-- has locked; $8 whether it is a standing one: that takes what tenure.dead_letter_due names of its queue, and strikes out what was moved or cannot be; any other one the dead letters
-- that were there at $9. Locks the dead letters that it moves, passing over those that somebody holds. Reads the primary key of tenure.dead_letter (of tenure.dead_letter_due)
-- beyond the cursor, dead letters of other queues among them. Row sorts as those of move_backlog.sql.
with page as materialized (
  (select h.id, h.ended_on, h.queue_id from tenure.dead_letter h where not $8::boolean and h.id > $4 order by h.id limit $5)
  union all
  (select d.id, d.ended_on, d.queue_id from tenure.dead_letter_due d where $8::boolean and d.queue_id = $1 and d.id > $4 order by d.id limit $5)
),
candidate as materialized (
  select p.id, p.ended_on from page p where p.queue_id = $1 order by p.id
),
picked as materialized (
  select h.*, $2::int as to_queue_id,
         case when tenure.first_gate(h.group_key, h.concurrency_keys, (select q.gated from tenure.queue q where q.id = $2)) is null then 3 else 2 end as new_state
  from candidate c
  cross join lateral (
    select h.* from tenure.dead_letter h
    where h.id = c.id and h.ended_on = c.ended_on and h.queue_id = $1 and ($8::boolean or h.ended_at <= $9)
      and ($3::text[] = '{}' or h.kind = any ($3))
      and not exists (select 1 from tenure.forward f where f.job_id = h.id)
    for update skip locked
  ) h
  limit $6
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
struck as (
  delete from tenure.dead_letter_due as d
  where $8::boolean and d.queue_id = $1
    and d.id = any (array(select w.id from won w union all select b.id from broken b union all
      select p.id from page p
      left join lateral (select true as moved from tenure.forward f where f.job_id = p.id limit 1) f on true
      left join lateral (select true as kept from tenure.dead_letter h where h.id = p.id and h.ended_on = p.ended_on limit 1) h on true
      where f.moved or h.kept is null))
),
inserted as (
  insert into tenure.job as j (id, queue_id, state, place, priority, rank, day, attempt, failures, crashes, releases, snoozes, max_attempts, crash_budget, due_at,
    expires_at, created_at, updated_at, started_at, kind, tenant, payload_size, payload, payload_day, content_type, headers, backoff_initial_us,
    backoff_multiplier, backoff_max_us, error_message, error_type, error_detail, error_attempt, error_at, effect_key, retry_of,
    concurrency_keys, group_key, gate)
  select w.new_id, w.to_queue_id, w.new_state, w.new_state, w.priority, 0, tenure.today(), 0, 0, 0, 0, 0, w.max_attempts, w.crash_budget, now(),
    now() + (select q.start_within_us from tenure.queue q where q.id = w.to_queue_id) * interval '1 microsecond', now(), now(), null, w.kind, w.tenant, w.payload_size, w.payload, case when w.large is not null then tenure.today() end, w.content_type, w.headers,
    w.backoff_initial_us, w.backoff_multiplier, w.backoff_max_us, null, null, null, null, null,
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
held as (
  insert into tenure.event as e (slot, queue_id, type, blocked, enqueued)
  select tenure.event_slot(), w.to_queue_id, 2, count(*), count(*) from won w where w.new_state = 2 group by w.to_queue_id
),
asked as (
  insert into tenure.event as e (slot, queue_id, type, admit)
  select tenure.event_slot(), w.to_queue_id, 5, array_agg(distinct n.name) from won w
  cross join lateral unnest(array(select 'k' || k from unnest(w.concurrency_keys) as k) || coalesce(array['g' || w.group_key], '{}') || array['q']) as n (name)
  where w.new_state = 2 group by w.to_queue_id
)
select 0 as row_sort, r.queue_id, r.priority, r.low_rank, r.low_id, r.high_rank, r.high_id, r.jobs, null::float8 as seconds,
       null::bigint as failed, null::bigint as held, null::bigint as cursor_id, null::bigint[] as made
from range r
union all
select 1, null, null, null, null, null, null, (select count(*) from won), null, (select count(*) from broken), 0,
       -- Not all of the page was looked at if the limit was reached.
       case when (select count(*) from picked) >= $6 then (select max(p.id) from picked p) else (select max(p.id) from page p) end,
       array(select w.new_id from won w order by w.new_id);

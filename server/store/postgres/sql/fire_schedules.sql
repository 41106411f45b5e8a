-- Makes the jobs of slots that are due, and moves their schedules on: jobs, runs and next slots in one transaction. $1, $2 name and term of
-- the leader: nothing is written once the term is over. Per schedule: $3 ids (sorted), $4 versions, $5 the next slot that was read, $6 the
-- one to come, $7 slots left out. Per slot: $8 id of the schedule, $9 the slot.
-- Locks the schedules' rows and passes over those that somebody holds; what was changed since it was read is left alone. A slot that has
-- its run already makes no second job. Under overlap 2 no slot makes a job while that of the slot before is live.
-- A queue with a gate of its own gets them blocked, and an event has them admitted.
-- Row sorts: 0 the term holds; 1 a schedule that was moved on, and the live job that its policy looks at; 2 a job that was made.
with in_term as materialized (
  select true as yes from tenure.leader l where l.worker = $1 and l.term = $2 for share
),
item as materialized (
  select t.* from unnest($3::bigint[], $4::bigint[], $5::timestamptz[], $6::timestamptz[], $7::bigint[])
    as t (id, version, was, next_at, missed)
  where exists (select 1 from in_term)
),
locked as materialized (
  select s.*, i.next_at as new_next, i.missed from item i
  cross join lateral (
    select s.* from tenure.schedule s where s.id = i.id and s.version = i.version and s.next_at = i.was for update skip locked
  ) s
),
previous as materialized (
  select l.id, j.id as job_id, j.queue_id, j.day from locked l
  cross join lateral (
    select j.id, j.queue_id, j.day from tenure.job j where j.id = l.last_job_id and j.queue_id = l.last_job_queue_id limit 1
  ) j
  where l.overlap <> 1
),
slot as materialized (
  select nextval('tenure.job_id') as job_id, x.slot, l.* from unnest($8::bigint[], $9::timestamptz[]) as x (schedule_id, slot)
  join locked l on l.id = x.schedule_id
  where not (l.overlap = 2 and l.id in (select p.id from previous p))
),
claimed as (
  insert into tenure.schedule_run as r (schedule_id, slot, job_queue_id, job_day, job_id, fired_at)
  select s.id, s.slot, s.queue_id, tenure.today(), s.job_id, now() from slot s order by s.id, s.slot
  on conflict (schedule_id, slot) do nothing
  returning r.job_id
),
won as materialized (
  select s.* from slot s where s.job_id in (select c.job_id from claimed c)
),
inserted as (
  insert into tenure.job as j (id, queue_id, state, place, priority, day, max_attempts, crash_budget, due_at, expires_at, created_at, updated_at,
                               kind, tenant, payload_size, payload, payload_day, content_type, headers, backoff_initial_us,
                               backoff_multiplier, backoff_max_us, gate)
  select w.job_id, w.queue_id, case when w.queue_id = any (array(select q.id from tenure.queue q where q.gated)) then 2 else 3 end,
         case when w.queue_id = any (array(select q.id from tenure.queue q where q.gated)) then 2 else 3 end, w.priority, tenure.today(), w.max_attempts, w.crash_budget, now(),
         now() + coalesce(w.ttl_us, (select q.start_within_us from tenure.queue q where q.id = w.queue_id)) * interval '1 microsecond', now(), now(), w.kind, w.tenant, length(w.payload),
         case when length(w.payload) <= 1000 then w.payload end, case when length(w.payload) > 1000 then tenure.today() end,
         w.content_type, coalesce(w.headers, '{}') || jsonb_build_object('tenure-schedule', w.name, 'tenure-slot', tenure.slot_text(w.slot)),
         w.backoff_initial_us, w.backoff_multiplier, w.backoff_max_us, tenure.first_gate(null, null, w.queue_id = any (array(select q.id from tenure.queue q where q.gated)))
  from won w
),
large as (
  insert into tenure.payload as p (day, id, queue_id, data)
  select tenure.today(), w.job_id, w.queue_id, w.payload from won w where length(w.payload) > 1000
),
told as (
  insert into tenure.event as e (slot, queue_id, type, priority, low_rank, low_id, high_rank, high_id, ready, enqueued)
  select tenure.event_slot(), w.queue_id, 1, w.priority, 0, min(w.job_id), 0, max(w.job_id), count(*), count(*)
  from won w where not w.queue_id = any (array(select q.id from tenure.queue q where q.gated)) group by w.queue_id, w.priority
),
held as (
  insert into tenure.event as e (slot, queue_id, type, blocked, enqueued)
  select tenure.event_slot(), w.queue_id, 2, count(*), count(*) from won w where w.queue_id = any (array(select q.id from tenure.queue q where q.gated)) group by w.queue_id
),
asked as (
  insert into tenure.event as e (slot, queue_id, type, admit)
  select tenure.event_slot(), w.queue_id, 5, '{q}' from won w where w.queue_id = any (array(select q.id from tenure.queue q where q.gated)) group by w.queue_id
),
latest as materialized (
  select distinct on (w.id) w.id, w.slot, w.job_id, w.queue_id, count(*) over (partition by w.id) as jobs
  from won w order by w.id, w.slot desc
),
counted as materialized (
  select l.id, (select count(*) from unnest($8::bigint[]) as x (schedule_id) where x.schedule_id = l.id)
               * (case when l.overlap = 2 and l.id in (select p.id from previous p) then 1 else 0 end) as held_back
  from locked l
),
moved as (
  update tenure.schedule as s
  set next_at = l.new_next, skipped_missed = s.skipped_missed + l.missed, skipped_overlap = s.skipped_overlap + c.held_back,
      fired = s.fired + coalesce(n.jobs, 0), last_slot = coalesce(n.slot, s.last_slot),
      last_job_queue_id = coalesce(n.queue_id, s.last_job_queue_id), last_job_id = coalesce(n.job_id, s.last_job_id),
      last_job_day = case when n.id is null then s.last_job_day else tenure.today() end
  from locked l join counted c on c.id = l.id left join latest n on n.id = l.id
  where s.id = l.id
)
select 0 as row_sort, null::bigint as schedule_id, null::bigint as job_id, null::int as day, null::int as queue_id, null::smallint as priority,
       null::float8 as late, null::bigint as held_back, null::bigint as missed
from in_term
union all
select 1, l.id, p.job_id, p.day, p.queue_id, l.overlap, null, c.held_back, l.missed
from locked l join counted c on c.id = l.id left join previous p on p.id = l.id
union all
select 2, w.id, w.job_id, tenure.today(), w.queue_id, w.priority, extract(epoch from now() - w.slot)::float8, null, null from won w;

-- Makes a job of a schedule now, apart from its slots. $1 name, $2 request id (NULL: none). Row sorts: 0 the schedule exists; 1 the job that was
-- made. Without the second the request id has been used: find_trigger.sql says by which job, in a later statement. In a queue with a gate of its own it is
-- blocked, and an event has it admitted. Locks nothing but a request id that another transaction has written and not committed.
with s as materialized (
  select nextval('tenure.job_id') as job_id, clock_timestamp() as slot, s.* from tenure.schedule s where s.name = $1
),
claimed as (
  insert into tenure.schedule_run as r (schedule_id, slot, request_id, job_queue_id, job_day, job_id, fired_at)
  select s.id, s.slot, $2, s.queue_id, tenure.today(), s.job_id, now() from s
  on conflict do nothing
  returning r.job_id
),
won as materialized (
  select s.* from s where s.job_id in (select c.job_id from claimed c)
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
  select tenure.event_slot(), w.queue_id, 1, w.priority, 0, w.job_id, 0, w.job_id, 1, 1 from won w where not w.queue_id = any (array(select q.id from tenure.queue q where q.gated))
),
held as (
  insert into tenure.event as e (slot, queue_id, type, blocked, enqueued) select tenure.event_slot(), w.queue_id, 2, 1, 1 from won w where w.queue_id = any (array(select q.id from tenure.queue q where q.gated))
),
asked as (
  insert into tenure.event as e (slot, queue_id, type, admit) select tenure.event_slot(), w.queue_id, 5, '{q}' from won w where w.queue_id = any (array(select q.id from tenure.queue q where q.gated))
)
select 0 as row_sort, s.id as schedule_id, null::bigint as job_id, null::int as day, null::int as queue_id, null::smallint as priority from s
union all
select 1, w.id, w.job_id, tenure.today(), w.queue_id, w.priority from won w;

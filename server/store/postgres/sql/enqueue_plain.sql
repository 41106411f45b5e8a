-- enqueue.sql for jobs that say nothing about times, budgets, retries, keys or groups, as most do: all of them are ready, or, in a queue
-- with a gate, blocked. $1 queue, one array per field in the order of the items: $2 kind, $3 payload, $4 content type, $5 headers,
-- $6 priority, $7 tenant. Locks nothing. Answers one row: the ids, which grow in the order of the items; their day, the transaction, and
-- the gate.
-- (select f()) is evaluated once, f() for each job.
with item as materialized (
  select nextval('tenure.job_id') as id, t.*, length(t.payload) as size
  from unnest($2::text[], $3::bytea[], $4::text[], $5::text[], $6::smallint[], $7::text[]) as t (kind, payload, content_type, headers, priority, tenant)
),
queue as materialized (
  select tenure.first_gate(null, null, q.gated) as gate, (case when q.gated then 2 else 3 end)::smallint as state, now() + q.start_within_us * interval '1 microsecond' as expires_at
  from tenure.queue q where q.id = $1
),
inserted as (
  insert into tenure.job as j (id, queue_id, state, place, priority, day, due_at, expires_at, created_at, updated_at, kind, tenant, payload_size,
                               payload, payload_day, content_type, headers, gate)
  select i.id, $1, (select q.state from queue q), (select q.state from queue q), i.priority, (select tenure.today()), now(),
         (select q.expires_at from queue q), now(), now(), i.kind, i.tenant, i.size, case when i.size <= 1000 then i.payload end,
         case when i.size > 1000 then (select tenure.today()) end, i.content_type, i.headers::jsonb, (select q.gate from queue q)
  from item i
),
large as (
  insert into tenure.payload as p (day, id, queue_id, data) select (select tenure.today()), i.id, $1, i.payload from item i where i.size > 1000
),
ready as (
  insert into tenure.event as e (slot, queue_id, type, priority, low_rank, low_id, high_rank, high_id, ready, enqueued)
  select tenure.event_slot(), $1, 1, i.priority, 0, min(i.id), 0, max(i.id), count(*), count(*)
  from item i where (select q.gate from queue q) is null group by i.priority
),
later as (
  insert into tenure.event as e (slot, queue_id, type, blocked, enqueued)
  select tenure.event_slot(), $1, 2, count(*), count(*) from item i where (select q.gate from queue q) is not null having count(*) > 0
)
select array(select i.id from item i order by i.id) as ids, tenure.today() as day, pg_current_xact_id() as xid, (select q.gate from queue q) as gate;

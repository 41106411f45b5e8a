-- Accepts jobs without idempotency keys, all of one queue; tells what became ready (an event row per priority) and what is due
-- later. $1 queue, $2.. one array per field, in the order of the items ($18 the concurrency
-- keys, sorted, each job's as the text of an array). A job with a gate to pass is blocked until it is admitted. Locks nothing. Answers id
-- and state in the order of the items.
-- A job without an expiry gets the one that its queue gives (start_within, from its due time): looked up once a batch, and not at all where
-- every job has its own.
-- (select f()) is evaluated once, f() for each job.
with item as materialized (
  select nextval('tenure.job_id') as id, t.*, greatest(coalesce(t.due, now() + t.delay_us * interval '1 microsecond'), now()) as due_at,
         coalesce(t.expires, now() + t.ttl_us * interval '1 microsecond',
                  greatest(coalesce(t.due, now() + t.delay_us * interval '1 microsecond'), now())
                    + (select q.start_within_us from tenure.queue q where q.id = $1) * interval '1 microsecond') as expires_at, length(t.payload) as size,
         case when coalesce(t.due <= now(), t.delay_us <= 0, true)
              then tenure.first_gate(t.group_key, t.keys::text[], (select q.gated from tenure.queue q where q.id = $1)) end as gate
  from unnest($2::text[], $3::bytea[], $4::text[], $5::text[], $6::smallint[], $7::text[], $8::timestamptz[], $9::bigint[],
              $10::timestamptz[], $11::bigint[], $12::int[], $13::int[], $14::bigint[], $15::float8[], $16::bigint[], $17::text[], $18::text[], $19::text[])
       with ordinality as t (kind, payload, content_type, headers, priority, tenant, due, delay_us, expires, ttl_us, max_attempts,
                             crash_budget, backoff_initial_us, backoff_multiplier, backoff_max_us, effect_key, keys, group_key, ord)
),
inserted as (
  insert into tenure.job as j (id, queue_id, state, place, priority, day, max_attempts, crash_budget, due_at, expires_at, created_at,
                               updated_at, kind, tenant, payload_size, payload, payload_day, content_type, headers,
                               backoff_initial_us, backoff_multiplier, backoff_max_us, effect_key, concurrency_keys, group_key,
                               gate)
  select i.id, $1, case when i.due_at > now() then 1 when i.gate is not null then 2 else 3 end, case when i.due_at > now() then 1 when i.gate is not null then 2 else 3 end, i.priority, (select tenure.today()), i.max_attempts, i.crash_budget,
         i.due_at, i.expires_at, now(), now(), i.kind, i.tenant, i.size, case when i.size <= 1000 then i.payload end,
         case when i.size > 1000 then (select tenure.today()) end, i.content_type, i.headers::jsonb, i.backoff_initial_us,
         i.backoff_multiplier, i.backoff_max_us, i.effect_key, i.keys::text[], i.group_key, i.gate
  from item i
),
large as (
  insert into tenure.payload as p (day, id, queue_id, data) select (select tenure.today()), i.id, $1, i.payload from item i where i.size > 1000
),
ready as (
  insert into tenure.event as e (slot, queue_id, type, priority, low_rank, low_id, high_rank, high_id, ready, enqueued)
  select tenure.event_slot(), $1, 1, i.priority, 0, min(i.id), 0, max(i.id), count(*), count(*)
  from item i where i.due_at <= now() and i.gate is null group by i.priority
),
later as (
  insert into tenure.event as e (slot, queue_id, type, scheduled, blocked, enqueued, due_at)
  select tenure.event_slot(), $1, 2, count(*) filter (where i.due_at > now()), count(i.gate), count(*), min(i.due_at) filter (where i.due_at > now())
  from item i where i.due_at > now() or i.gate is not null having count(*) > 0
)
select i.id, (select tenure.today()) as day, i.priority, case when i.due_at > now() then extract(epoch from i.due_at - now())::float8 else 0 end as due_in,
       pg_current_xact_id() as xid, i.gate
from item i order by i.ord;

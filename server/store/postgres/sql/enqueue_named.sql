-- Accepts jobs that have been decided on: with a unique key, an idempotency key that is taken already (take_keys.sql), as the retry of another, or to
-- wait for other jobs; all of one queue. As enqueue.sql, and: $20 ids (drawn by unique_holders.sql), $21 idempotency keys, $22 unique names,
-- $23 what they retry, $24 whether they wait for jobs: those are blocked without standing at a gate, and the time
-- in which they have to start (start_within) begins when they are released. Locks nothing.
with item as materialized (
  select t.*, greatest(coalesce(t.due, now() + t.delay_us * interval '1 microsecond'), now()) as due_at,
         coalesce(t.expires, now() + t.ttl_us * interval '1 microsecond',
                  case when not t.waits then greatest(coalesce(t.due, now() + t.delay_us * interval '1 microsecond'), now())
                    + (select q.start_within_us from tenure.queue q where q.id = $1) * interval '1 microsecond' end) as expires_at, length(t.payload) as size,
         case when not t.waits and coalesce(t.due <= now(), t.delay_us <= 0, true)
              then tenure.first_gate(t.group_key, t.keys::text[], (select q.gated from tenure.queue q where q.id = $1)) end as gate
  from unnest($2::text[], $3::bytea[], $4::text[], $5::text[], $6::smallint[], $7::text[], $8::timestamptz[], $9::bigint[],
              $10::timestamptz[], $11::bigint[], $12::int[], $13::int[], $14::bigint[], $15::float8[], $16::bigint[], $17::text[], $18::text[], $19::text[],
              $20::bigint[], $21::text[], $22::text[], $23::text[], $24::boolean[])
       with ordinality as t (kind, payload, content_type, headers, priority, tenant, due, delay_us, expires, ttl_us, max_attempts,
                             crash_budget, backoff_initial_us, backoff_multiplier, backoff_max_us, effect_key, keys, group_key, id, idempotency_key, unique_name, retry_of,
                             waits, ord)
),
inserted as (
  insert into tenure.job as j (id, queue_id, state, place, priority, day, max_attempts, crash_budget, due_at, expires_at, created_at,
                               updated_at, kind, tenant, payload_size, payload, payload_day, content_type, headers,
                               backoff_initial_us, backoff_multiplier, backoff_max_us, effect_key, concurrency_keys, group_key,
                               gate, idempotency_key, unique_name, retry_of)
  select i.id, $1, case when i.waits then 2 when i.due_at > now() then 1 when i.gate is not null then 2 else 3 end, case when i.waits then 2 when i.due_at > now() then 1 when i.gate is not null then 2 else 3 end, i.priority, (select tenure.today()), i.max_attempts, i.crash_budget,
         i.due_at, i.expires_at, now(), now(), i.kind, i.tenant, i.size, case when i.size <= 1000 then i.payload end,
         case when i.size > 1000 then (select tenure.today()) end, i.content_type, i.headers::jsonb, i.backoff_initial_us,
         i.backoff_multiplier, i.backoff_max_us, i.effect_key, i.keys::text[], i.group_key, i.gate, i.idempotency_key, i.unique_name, i.retry_of
  from item i
),
large as (
  insert into tenure.payload as p (day, id, queue_id, data) select (select tenure.today()), i.id, $1, i.payload from item i where i.size > 1000
),
ready as (
  insert into tenure.event as e (slot, queue_id, type, priority, low_rank, low_id, high_rank, high_id, ready, enqueued)
  select tenure.event_slot(), $1, 1, i.priority, 0, min(i.id), 0, max(i.id), count(*), count(*)
  from item i where not i.waits and i.due_at <= now() and i.gate is null group by i.priority
),
later as (
  insert into tenure.event as e (slot, queue_id, type, scheduled, blocked, enqueued, due_at)
  select tenure.event_slot(), $1, 2, count(*) filter (where i.due_at > now() and not i.waits), count(*) filter (where i.waits or i.gate is not null), count(*),
         min(i.due_at) filter (where i.due_at > now() and not i.waits)
  from item i where i.waits or i.due_at > now() or i.gate is not null having count(*) > 0
)
select i.id, (select tenure.today()) as day, i.priority, case when i.due_at > now() then extract(epoch from i.due_at - now())::float8 else 0 end as due_in,
       pg_current_xact_id() as xid, i.gate, i.waits
from item i order by i.ord;

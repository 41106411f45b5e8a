-- Accepts jobs with idempotency keys, all of one queue, keys distinct. The ids grow in the order of the items. A key that is new (or past its retention) wins and
-- its job is inserted; the others are answered by find_keys.sql, in a later statement whose snapshot sees what this one waited for.
-- Parameters as in enqueue.sql up to $17, then $18 scope, $19 keys, $20 retention in microseconds, $21 fingerprints, $22 retry_of, $23 concurrency keys
-- and $24 groups.
-- Locks the keys in their order, as everybody does; waits for a key that another transaction has written and not committed, up to lock_timeout.
with item as materialized (
  select nextval('tenure.job_id') as id, t.*, greatest(coalesce(t.due, now() + t.delay_us * interval '1 microsecond'), now()) as due_at,
         coalesce(t.expires, now() + t.ttl_us * interval '1 microsecond',
                  greatest(coalesce(t.due, now() + t.delay_us * interval '1 microsecond'), now())
                    + (select q.start_within_us from tenure.queue q where q.id = $1) * interval '1 microsecond') as expires_at, length(t.payload) as size,
         case when coalesce(t.due <= now(), t.delay_us <= 0, true)
              then tenure.first_gate(t.group_key, t.keys::text[], (select q.gated from tenure.queue q where q.id = $1)) end as gate
  from unnest($2::text[], $3::bytea[], $4::text[], $5::text[], $6::smallint[], $7::text[], $8::timestamptz[], $9::bigint[],
              $10::timestamptz[], $11::bigint[], $12::int[], $13::int[], $14::bigint[], $15::float8[], $16::bigint[], $17::text[],
              $19::text[], $20::bigint[], $21::bytea[], $22::text[], $23::text[], $24::text[])
       with ordinality as t (kind, payload, content_type, headers, priority, tenant, due, delay_us, expires, ttl_us, max_attempts,
                             crash_budget, backoff_initial_us, backoff_multiplier, backoff_max_us, effect_key, key, keep_us,
                             fingerprint, retry_of, keys, group_key, ord)
),
keyed as (
  insert into tenure.idempotency as k (queue_id, scope, key, job_id, job_day, fingerprint, expires_at)
  select $1, $18, i.key, i.id, (select tenure.today()), i.fingerprint, now() + i.keep_us * interval '1 microsecond' from item i
  order by i.key collate "C"
  on conflict (queue_id, scope, key) do update
    set job_id = excluded.job_id, job_day = excluded.job_day, existing = false, fingerprint = excluded.fingerprint, expires_at = excluded.expires_at
    where k.expires_at <= now()
  returning k.job_id
),
won as materialized (
  select i.* from item i where i.id in (select job_id from keyed)
),
inserted as (
  insert into tenure.job as j (id, queue_id, state, place, priority, day, max_attempts, crash_budget, due_at, expires_at, created_at,
                               updated_at, kind, tenant, payload_size, payload, payload_day, content_type, headers,
                               backoff_initial_us, backoff_multiplier, backoff_max_us, effect_key, idempotency_key, retry_of,
                               concurrency_keys, group_key, gate)
  select i.id, $1, case when i.due_at > now() then 1 when i.gate is not null then 2 else 3 end, case when i.due_at > now() then 1 when i.gate is not null then 2 else 3 end, i.priority, (select tenure.today()), i.max_attempts, i.crash_budget,
         i.due_at, i.expires_at, now(), now(), i.kind, i.tenant, i.size, case when i.size <= 1000 then i.payload end,
         case when i.size > 1000 then (select tenure.today()) end, i.content_type, i.headers::jsonb, i.backoff_initial_us,
         i.backoff_multiplier, i.backoff_max_us, i.effect_key, case when $18 = 0 then i.key end, i.retry_of,
         i.keys::text[], i.group_key, i.gate
  from won i
),
large as (
  insert into tenure.payload as p (day, id, queue_id, data) select (select tenure.today()), i.id, $1, i.payload from won i where i.size > 1000
),
ready as (
  insert into tenure.event as e (slot, queue_id, type, priority, low_rank, low_id, high_rank, high_id, ready, enqueued)
  select tenure.event_slot(), $1, 1, i.priority, 0, min(i.id), 0, max(i.id), count(*), count(*)
  from won i where i.due_at <= now() and i.gate is null group by i.priority
),
later as (
  insert into tenure.event as e (slot, queue_id, type, scheduled, blocked, enqueued, due_at)
  select tenure.event_slot(), $1, 2, count(*) filter (where i.due_at > now()), count(i.gate), count(*), min(i.due_at) filter (where i.due_at > now())
  from won i where i.due_at > now() or i.gate is not null having count(*) > 0
)
select i.ord, i.id, (select tenure.today()) as day, i.priority, case when i.due_at > now() then extract(epoch from i.due_at - now())::float8 else 0 end as due_in,
       pg_current_xact_id() as xid, i.gate
from won i order by i.ord;

-- $1 name, $2 paused, $3 max_attempts, $4 crash_budget, $5-$7 backoff, $8 description, $9 max_depth, $10 max_tenant_depth, $11 whether groups skip jobs that wait for a
-- retry, $12 whether tenants take turns (then the queue is gated), $13 ageing, $14 start_within, both in microseconds, $15 the queue of its dead letters,
-- which exists, and $16 how many a second; with it, the standing move. No row: it exists.
with made as (
  insert into tenure.queue as q (name, paused, max_attempts, crash_budget, backoff_initial_us, backoff_multiplier, backoff_max_us, description,
                                 max_depth, max_tenant_depth, skip_retrying, fair_tenants, gated, priority_ageing_us, start_within_us, dead_letter_queue,
                                 dead_letter_rate)
  values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $12, $13, $14, $15, $16) on conflict (name) do nothing returning q.*
),
ruled as (
  insert into tenure.move as m (from_queue_id, to_queue_id, source, rate, standing, used_until, created_at, updated_at)
  select c.id, t.id, 1, c.dead_letter_rate, true, now(), now(), now() from made c join tenure.queue t on t.name = c.dead_letter_queue
),
told as (
  insert into tenure.event as e (slot, queue_id, type) select tenure.event_slot(), m.id, 4 from made m
)
select m.* from made m;

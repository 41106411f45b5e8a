-- $1 name; for each setting whether to set it ($2, $4, $6, $10, $12, $14, $16, $18, $20, $22, $24, $26) and its value (NULL: the default). A queue whose tenants
-- take turns is gated; if they did not before, its ready jobs are recalled (recall.sql). With the queue of the
-- dead letters the standing move is made, or set going; without, it is paused: once this has returned it moves nothing more. Waits for a step of
-- it in progress.
with before as materialized (
  select q.id, q.fair_tenants from tenure.queue q where q.name = $1 for update
),
changed as (
  update tenure.queue as q
  set max_attempts = case when $2 then $3 else q.max_attempts end,
      crash_budget = case when $4 then $5 else q.crash_budget end,
      backoff_initial_us = case when $6 then $7 else q.backoff_initial_us end,
      backoff_multiplier = case when $6 then $8 else q.backoff_multiplier end,
      backoff_max_us = case when $6 then $9 else q.backoff_max_us end,
      description = case when $10 then $11 else q.description end,
      max_depth = case when $12 then $13 else q.max_depth end,
      max_tenant_depth = case when $14 then $15 else q.max_tenant_depth end,
      skip_retrying = case when $16 then $17 else q.skip_retrying end,
      fair_tenants = case when $18 then $19 else q.fair_tenants end,
      gated = case when $18 then $19 or exists (select 1 from tenure.admission_limit l where l.queue_id = q.id and l.scope = 3) else q.gated end,
      priority_ageing_us = case when $20 then $21 else q.priority_ageing_us end,
      start_within_us = case when $22 then $23 else q.start_within_us end,
      dead_letter_queue = case when $24 then $25 else q.dead_letter_queue end,
      dead_letter_rate = case when $26 then $27 else q.dead_letter_rate end
  from before b where q.id = b.id returning q.*
),
recalled as (
  insert into tenure.admission_recall as r (queue_id)
  select b.id from before b join changed c on c.id = b.id where c.fair_tenants and not b.fair_tenants
  on conflict (queue_id) do update
    set began = pg_current_xact_id(), since = clock_timestamp(), priority = null, rank = null, id = null, found = 0, last = false
),
ruled as (
  insert into tenure.move as m (from_queue_id, to_queue_id, source, rate, standing, used_until, created_at, updated_at)
  select c.id, t.id, 1, c.dead_letter_rate, true, now(), now(), now()
  from changed c join tenure.queue t on t.name = c.dead_letter_queue
  where $24 or $26
  on conflict (from_queue_id) where standing do update
  set to_queue_id = excluded.to_queue_id, rate = excluded.rate, state = 1, used_until = excluded.used_until, updated_at = now()
),
unruled as (
  update tenure.move as m set state = 2, updated_at = now()
  from changed c where m.from_queue_id = c.id and m.standing and m.state = 1 and c.dead_letter_queue is null
),
told as (
  insert into tenure.event as e (slot, queue_id, type) select tenure.event_slot(), c.id, 4 from changed c
)
select c.* from changed c;

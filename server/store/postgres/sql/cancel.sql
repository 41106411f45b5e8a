-- Ends live jobs of one queue as cancelled, in whatever state; tells the workers that hold them. $1 queue, $2 ids (sorted,
-- distinct), $3 reason, $4 days of enqueue (one per id). Answers the ids that it ended; what is not answered is locked by somebody, or has ended, or never was.
-- The event of each end goes to the outbox if a target wants it, which is asked once per statement.
with locked as materialized (
  select j.* from unnest($2::bigint[], $4::int[]) as i (id, day)
  cross join lateral (
    select j.* from tenure.job j where j.id = i.id and j.queue_id = $1 and j.day = i.day for update skip locked
  ) j
),
removed as (
  delete from tenure.job as j where j.queue_id = $1 and j.id = any (array(select l.id from locked l))
),
kept as (
  insert into tenure.history as h (ended_on, id, queue_id, state, priority, day, attempt, failures, crashes, releases, snoozes,
    max_attempts, crash_budget, token, token_secret, settled_verb, worker, leased_at, due_at, expires_at, created_at, started_at,
    ended_at, kind, tenant, payload_size, payload, payload_day, content_type, headers, backoff_initial_us, backoff_multiplier,
    backoff_max_us, error_message, error_type, error_detail, error_attempt, error_at, effect_key, retry_of, idempotency_key,
    concurrency_keys, group_key, unique_name)
  select (select (now() at time zone 'utc')::date), l.id, l.queue_id, 8, l.priority, l.day, l.attempt, l.failures, l.crashes, l.releases, l.snoozes,
    l.max_attempts, l.crash_budget, l.token, l.token_secret, 5, l.worker, l.leased_at, l.due_at, l.expires_at, l.created_at, l.started_at,
    now(), l.kind, l.tenant, l.payload_size, l.payload, l.payload_day, l.content_type, l.headers, l.backoff_initial_us,
    l.backoff_multiplier, l.backoff_max_us,
    case when $3 <> '' then 'cancelled: ' || $3 else l.error_message end, case when $3 <> '' then 'Cancelled' else l.error_type end,
    l.error_detail, l.error_attempt, case when $3 <> '' then now() else l.error_at end, l.effect_key,
    l.retry_of, l.idempotency_key, l.concurrency_keys, l.group_key, l.unique_name
  from locked l
),
counted as (
  insert into tenure.event as e (slot, queue_id, type, scheduled, blocked, ready, leased, suspended, cancelled)
  select tenure.event_slot(), $1, 2, -count(*) filter (where l.state = 1), -count(*) filter (where l.state = 2),
         -count(*) filter (where l.state = 3), -count(*) filter (where l.state = 4), -count(*) filter (where l.state = 5), count(*)
  from locked l having count(*) > 0
),
told as (
  insert into tenure.event as e (slot, queue_id, type, notice, worker, job_id, job_day, token, reason)
  select tenure.event_slot(), $1, 3, 1, l.worker, l.id, l.day, l.token, $3 from locked l where l.state = 4
),
outbound as (
  insert into tenure.outbox as o (slot, queue_id, state, job_id, job_day, kind, tenant, attempt, failures, crashes, created_at, started_at,
    ended_at, error_message, error_type, effect_key, retry_of, headers)
  select (select tenure.event_slot()), $1, 8, l.id, l.day, l.kind, l.tenant, l.attempt, l.failures, l.crashes, l.created_at, l.started_at,
    now(), case when $3 <> '' then 'cancelled: ' || $3 else l.error_message end, case when $3 <> '' then 'Cancelled' else l.error_type end, l.effect_key, l.retry_of, l.headers
  from locked l
  where (select bit_or(i.events) from tenure.outbox_interest i where i.queue_id = any (array[0, $1])) & 4 <> 0
)
select l.id, l.state, l.worker, l.token, l.concurrency_keys, l.group_key, l.awaited from locked l;

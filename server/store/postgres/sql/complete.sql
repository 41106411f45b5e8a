-- Ends jobs of one queue as completed: deletes the live rows, inserts them into history, frees their counts. $1 queue,
-- $2 ids (sorted, distinct), $3 token numbers, $4 secrets, $5 results, $6 result types. The fence is the token; everything that
-- ends a lease bumps it. Answers the ids that it ended; what is not answered is locked by somebody, or its token is stale.
-- The event of each end goes to the outbox if a target wants it, which is asked once per statement.
-- With each its keys and group, whose slot it frees, and whether jobs wait for it.
with locked as materialized (
  select j.*, i.result, i.result_type
  from unnest($2::bigint[], $3::int[], $4::bigint[], $5::bytea[], $6::text[])
       as i (id, number, secret, result, result_type)
  cross join lateral (
    select j.* from tenure.job j
    where j.id = i.id and j.queue_id = $1 and j.token = i.number and j.token_secret = i.secret and (j.state + 0) = 4
    for update skip locked
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
    result, result_type, concurrency_keys, group_key, unique_name)
  select (select (now() at time zone 'utc')::date), l.id, l.queue_id, 6, l.priority, l.day, l.attempt, l.failures, l.crashes, l.releases, l.snoozes,
    l.max_attempts, l.crash_budget, l.token, l.token_secret, 1, l.worker, l.leased_at, l.due_at, l.expires_at, l.created_at, l.started_at,
    now(), l.kind, l.tenant, l.payload_size, l.payload, l.payload_day, l.content_type, l.headers, l.backoff_initial_us,
    l.backoff_multiplier, l.backoff_max_us, l.error_message, l.error_type, l.error_detail, l.error_attempt, l.error_at, l.effect_key,
    l.retry_of, l.idempotency_key, l.result, l.result_type, l.concurrency_keys, l.group_key, l.unique_name
  from locked l
),
counted as (
  insert into tenure.event as e (slot, queue_id, type, leased, completed)
  select tenure.event_slot(), $1, 2, -count(*), count(*) from locked having count(*) > 0
),
outbound as (
  insert into tenure.outbox as o (slot, queue_id, state, job_id, job_day, kind, tenant, attempt, failures, crashes, created_at, started_at,
    ended_at, error_message, error_type, effect_key, retry_of, headers)
  select (select tenure.event_slot()), $1, 6, l.id, l.day, l.kind, l.tenant, l.attempt, l.failures, l.crashes, l.created_at, l.started_at,
    now(), null, null, l.effect_key, l.retry_of, l.headers
  from locked l
  where (select bit_or(i.events) from tenure.outbox_interest i where i.queue_id = any (array[0, $1])) & 1 <> 0
)
select l.id, pg_current_xact_id() as xid, l.concurrency_keys, l.group_key, l.awaited from locked l;

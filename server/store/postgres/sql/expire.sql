-- Jobs that did not start in time end as expired. $1, $2 name and term of the leader; $3 limit. Reads the index job_expiring. Answers how
-- many, by queue, keys and group, and which of them others wait for. The event of each end goes to the outbox if a target wants it.
with in_term as materialized (
  select true as yes from tenure.leader l where l.worker = $1 and l.term = $2 for share
),
candidate as materialized (
  select j.id, j.queue_id from tenure.job j
  where j.expires_at is not null and (j.state + 0) <> 4 and j.expires_at <= now() and j.started_at is null and exists (select 1 from in_term)
  order by j.expires_at, j.id limit $3
),
locked as materialized (
  select j.* from candidate c
  cross join lateral (
    select j.* from tenure.job j
    where j.id = c.id and j.queue_id = c.queue_id and (j.state + 0) <> 4 and j.expires_at <= now() and j.started_at is null
    for update skip locked
  ) j
),
removed as (
  delete from tenure.job as j where j.id = any (array(select l.id from locked l))
),
kept as (
  insert into tenure.history as h (ended_on, id, queue_id, state, priority, day, attempt, failures, crashes, releases, snoozes,
    max_attempts, crash_budget, token, token_secret, settled_verb, worker, leased_at, due_at, expires_at, created_at, started_at,
    ended_at, kind, tenant, payload_size, payload, payload_day, content_type, headers, backoff_initial_us, backoff_multiplier,
    backoff_max_us, error_message, error_type, error_detail, error_attempt, error_at, effect_key, retry_of, idempotency_key,
    concurrency_keys, group_key, unique_name)
  select (select (now() at time zone 'utc')::date), l.id, l.queue_id, 9, l.priority, l.day, l.attempt, l.failures, l.crashes, l.releases, l.snoozes,
    l.max_attempts, l.crash_budget, l.token, l.token_secret, 7, l.worker, l.leased_at, l.due_at, l.expires_at, l.created_at, l.started_at,
    now(), l.kind, l.tenant, l.payload_size, l.payload, l.payload_day, l.content_type, l.headers, l.backoff_initial_us,
    l.backoff_multiplier, l.backoff_max_us, l.error_message, l.error_type, l.error_detail, l.error_attempt, l.error_at, l.effect_key,
    l.retry_of, l.idempotency_key, l.concurrency_keys, l.group_key, l.unique_name
  from locked l
),
counted as (
  insert into tenure.event as e (slot, queue_id, type, scheduled, blocked, ready, suspended, expired)
  select tenure.event_slot(), l.queue_id, 2, -count(*) filter (where l.state = 1), -count(*) filter (where l.state = 2),
         -count(*) filter (where l.state = 3), -count(*) filter (where l.state = 5), count(*)
  from locked l group by l.queue_id
),
outbound as (
  insert into tenure.outbox as o (slot, queue_id, state, job_id, job_day, kind, tenant, attempt, failures, crashes, created_at, started_at,
    ended_at, error_message, error_type, effect_key, retry_of, headers)
  select tenure.event_slot(), l.queue_id, 9, l.id, l.day, l.kind, l.tenant, l.attempt, l.failures, l.crashes, l.created_at, l.started_at,
    now(), l.error_message, l.error_type, l.effect_key, l.retry_of, l.headers
  from locked l
  where exists (select 1 from tenure.outbox_interest i where i.queue_id = any (array[0, l.queue_id]) and i.events & 8 <> 0)
)
select q.name, count(*) as jobs, l.queue_id, l.concurrency_keys, l.group_key, array_agg(l.id) filter (where l.awaited) as awaited_ids from locked l join tenure.queue q on q.id = l.queue_id
group by q.name, l.queue_id, l.concurrency_keys, l.group_key;

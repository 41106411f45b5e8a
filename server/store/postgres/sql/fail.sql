-- Records failures of jobs of one queue: back to scheduled after the backoff (ready at once if it is zero, or blocked if it is subject to
-- admission: it has to pass its gates again), or to the dead letters when the
-- budget is spent or the failure is final. $1 queue, $2 ids (sorted, distinct), $3 token numbers, $4 secrets, $5 messages,
-- $6 types, $7 details, $8 non-retryable, $9 retry after in microseconds (NULL: the backoff).
-- Answers the ids that it settled; what is not answered is locked by somebody, or its token is stale.
-- A dead letter of a queue with a rule for them is noted for it.
-- The event of each end goes to the outbox if a target wants it, which is asked once per statement.
with locked as materialized (
  select j.*, i.message, i.type, i.detail, q.dead_letter_queue is not null as leaves,
         i.final or j.failures + 1 >= coalesce(j.max_attempts, q.max_attempts, 20) as dead,
         coalesce(i.retry_after_us,
                  tenure.backoff_us(coalesce(j.backoff_initial_us, q.backoff_initial_us, 1000000),
                                    coalesce(j.backoff_multiplier, q.backoff_multiplier, 2),
                                    coalesce(j.backoff_max_us, q.backoff_max_us, 3600000000), j.failures + 1, j.id)) as delay_us
  from (select q.max_attempts, q.backoff_initial_us, q.backoff_multiplier, q.backoff_max_us, q.dead_letter_queue
        from tenure.queue q where q.id = $1) q
  cross join unnest($2::bigint[], $3::int[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::boolean[], $9::bigint[])
       as i (id, number, secret, message, type, detail, final, retry_after_us)
  cross join lateral (
    select j.* from tenure.job j
    where j.id = i.id and j.queue_id = $1 and j.token = i.number and j.token_secret = i.secret and (j.state + 0) = 4
    for update skip locked
  ) j
),
retry as materialized (
  select array_agg(l.id order by l.id) as ids, array_agg(l.delay_us order by l.id) as delays,
         array_agg(l.message order by l.id) as messages, array_agg(l.type order by l.id) as types,
         array_agg(l.detail order by l.id) as details
  from locked l where not l.dead
),
retried as (
  update tenure.job as j
  set state = case when (select r.delays from retry r)[width_bucket(j.id, (select r.ids from retry r))] > 0 then 1
                   when j.gate is not null then 2 else 3 end,
      place = case when (select r.delays from retry r)[width_bucket(j.id, (select r.ids from retry r))] > 0 then 1
                   when j.gate is not null then 2 else 3 end,
      gate = case when j.gate is not null and (select r.delays from retry r)[width_bucket(j.id, (select r.ids from retry r))] <= 0
                  then tenure.first_gate(j.group_key, j.concurrency_keys, true) end,
      due_at = now() + (select r.delays from retry r)[width_bucket(j.id, (select r.ids from retry r))] * interval '1 microsecond',
      failures = j.failures + 1, settled_token = j.token, settled_secret = j.token_secret, settled_verb = 2, token = j.token + 1,
      worker = null, lease_us = null, lease_until = null, leased_at = null, updated_at = now(),
      error_message = (select r.messages from retry r)[width_bucket(j.id, (select r.ids from retry r))],
      error_type = (select r.types from retry r)[width_bucket(j.id, (select r.ids from retry r))],
      error_detail = (select r.details from retry r)[width_bucket(j.id, (select r.ids from retry r))],
      error_attempt = j.attempt, error_at = now()
  where j.queue_id = $1 and j.id = any ((select r.ids from retry r)::bigint[])
  returning j.id, j.state, j.priority, j.rank, j.due_at, j.concurrency_keys, j.group_key
),
removed as (
  delete from tenure.job as j where j.queue_id = $1 and j.id = any (array(select l.id from locked l where l.dead))
),
dead as (
  insert into tenure.dead_letter as h (ended_on, id, queue_id, state, priority, day, attempt, failures, crashes, releases, snoozes,
    max_attempts, crash_budget, token, token_secret, settled_verb, worker, leased_at, due_at, expires_at, created_at, started_at,
    ended_at, kind, tenant, payload_size, payload, payload_day, content_type, headers, backoff_initial_us, backoff_multiplier,
    backoff_max_us, error_message, error_type, error_detail, error_attempt, error_at, effect_key, retry_of, idempotency_key,
    concurrency_keys, group_key, unique_name)
  select (select (now() at time zone 'utc')::date), l.id, l.queue_id, 7, l.priority, l.day, l.attempt, l.failures + 1, l.crashes, l.releases, l.snoozes,
    l.max_attempts, l.crash_budget, l.token, l.token_secret, 2, l.worker, l.leased_at, l.due_at, l.expires_at, l.created_at, l.started_at,
    now(), l.kind, l.tenant, l.payload_size, l.payload, l.payload_day, l.content_type, l.headers, l.backoff_initial_us,
    l.backoff_multiplier, l.backoff_max_us, l.message, l.type, l.detail, l.attempt, now(), l.effect_key,
    l.retry_of, l.idempotency_key, l.concurrency_keys, l.group_key, l.unique_name
  from locked l where l.dead
),
leaving as (
  insert into tenure.dead_letter_due as d (queue_id, id, ended_on)
  select $1, l.id, (select (now() at time zone 'utc')::date) from locked l where l.dead and l.leaves
),
ready as (
  insert into tenure.event as e (slot, queue_id, type, priority, low_rank, low_id, high_rank, high_id, ready)
  select tenure.event_slot(), $1, 1, r.priority, min(r.rank), min(r.id), max(r.rank), max(r.id), count(*)
  from retried r where r.state = 3 group by r.priority
),
counted as (
  insert into tenure.event as e (slot, queue_id, type, leased, scheduled, blocked, discarded, due_at)
  select tenure.event_slot(), $1, 2, -count(*), count(*) filter (where not l.dead and l.delay_us > 0),
         nullif(count(*) filter (where not l.dead and l.delay_us <= 0 and l.gate is not null), 0), count(*) filter (where l.dead),
         (select min(r.due_at) from retried r where r.state = 1)
  from locked l having count(*) > 0
),
outbound as (
  insert into tenure.outbox as o (slot, queue_id, state, job_id, job_day, kind, tenant, attempt, failures, crashes, created_at, started_at,
    ended_at, error_message, error_type, effect_key, retry_of, headers)
  select (select tenure.event_slot()), $1, 7, l.id, l.day, l.kind, l.tenant, l.attempt, l.failures + 1, l.crashes, l.created_at, l.started_at,
    now(), l.message, l.type, l.effect_key, l.retry_of, l.headers
  from locked l
  where l.dead and (select bit_or(i.events) from tenure.outbox_interest i where i.queue_id = any (array[0, $1])) & 2 <> 0
)
select r.id, r.state, r.priority, r.rank, r.due_at, extract(epoch from r.due_at - now())::float8 as due_in,
       pg_current_xact_id() as xid, r.concurrency_keys, r.group_key, null::boolean as awaited
from retried r
union all
select l.id, 7, l.priority, l.rank, null, null, pg_current_xact_id(), l.concurrency_keys, l.group_key, l.awaited from locked l where l.dead;

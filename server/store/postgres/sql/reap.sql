-- Ends leases of one queue that have run out: back to ready, or to the dead letters at the crash budget; tells the workers.
-- $1 queue, $2 ids (sorted, distinct), $3 token numbers; $4, $5, $6 worker, first shard and term of a fence, or NULL for the replica
-- that granted the leases: with a fence nothing is written once its term is over, or has the queue's shard no more; $7 only what ended
-- before this time.
-- A lease that ran out while no daemon could reach the database (tenure.outage) stands for a third of its duration more, so that its
-- worker can extend it, and burns no crash.
-- What goes back to ready keeps its slots. A dead letter of a queue with a rule for them is noted for it.
-- Answers each lease that is still there: reaped, discarded, or how long it has yet. The event of each end goes to the outbox if a target wants it, which is asked once per statement.
with in_term as materialized (
  select true as yes from tenure.shard_lease l
  where l.worker = $4 and l.first_shard = $5 and l.term = $6 and l.replica_id is not null
    and tenure.shard_of($1) between l.first_shard and l.last_shard
  for share
),
outage as materialized (
  select o.began_at, o.ended_at from tenure.outage o order by o.id desc limit 1
),
locked as materialized (
  select j.*, q.crash_budget as queue_crash_budget, q.name as queue_name, q.dead_letter_queue is not null as leaves,
         case when o.ended_at is not null and j.lease_until >= o.began_at
              then greatest(j.lease_until, o.ended_at + j.lease_us / 3 * interval '1 microsecond')
              else j.lease_until end as ends_at,
         coalesce(j.lease_until between o.began_at and o.ended_at + j.lease_us / 3 * interval '1 microsecond', false) as forgiven
  from (select q.crash_budget, q.name, q.dead_letter_queue from tenure.queue q where q.id = $1) q
  left join outage o on true
  cross join unnest($2::bigint[], $3::int[]) as i (id, number)
  cross join lateral (
    select j.* from tenure.job j
    where j.id = i.id and j.queue_id = $1 and j.token = i.number and (j.state + 0) = 4
      and ($4::text is null or exists (select 1 from in_term))
    for update skip locked
  ) j
),
judged as materialized (
  select l.*, l.ends_at <= least(now(), $7::timestamptz) as over,
         not l.forgiven and l.crashes + 1 >= coalesce(l.crash_budget, l.queue_crash_budget, 5) as dead
  from locked l
),
back as materialized (
  select array_agg(l.id order by l.id) as ids, array_agg(case when l.forgiven then 0 else 1 end order by l.id) as crashes
  from judged l where l.over and not l.dead
),
given as (
  update tenure.job as j
  set state = 3, due_at = now(), crashes = j.crashes + (select b.crashes from back b)[width_bucket(j.id, (select b.ids from back b))],
      settled_token = j.token, settled_secret = j.token_secret, settled_verb = 6, token = j.token + 1,
      worker = null, lease_us = null, lease_until = null, leased_at = null, updated_at = now()
  where j.queue_id = $1 and j.id = any ((select b.ids from back b)::bigint[])
  returning j.id, j.priority, j.rank
),
removed as (
  delete from tenure.job as j where j.queue_id = $1 and j.id = any (array(select l.id from judged l where l.over and l.dead))
),
dead as (
  insert into tenure.dead_letter as h (ended_on, id, queue_id, state, priority, day, attempt, failures, crashes, releases, snoozes,
    max_attempts, crash_budget, token, token_secret, settled_verb, worker, leased_at, due_at, expires_at, created_at, started_at,
    ended_at, kind, tenant, payload_size, payload, payload_day, content_type, headers, backoff_initial_us, backoff_multiplier,
    backoff_max_us, error_message, error_type, error_detail, error_attempt, error_at, effect_key, retry_of, idempotency_key,
    concurrency_keys, group_key, unique_name)
  select (select (now() at time zone 'utc')::date), l.id, l.queue_id, 7, l.priority, l.day, l.attempt, l.failures, l.crashes + 1, l.releases, l.snoozes,
    l.max_attempts, l.crash_budget, l.token, l.token_secret, 6, l.worker, l.leased_at, l.due_at, l.expires_at, l.created_at, l.started_at,
    now(), l.kind, l.tenant, l.payload_size, l.payload, l.payload_day, l.content_type, l.headers, l.backoff_initial_us,
    l.backoff_multiplier, l.backoff_max_us, 'the lease ran out ' || l.crashes + 1 || ' times: its worker died, hung or could not extend it',
    'LeaseExpired', l.error_message, l.attempt, now(), l.effect_key, l.retry_of, l.idempotency_key,
    l.concurrency_keys, l.group_key, l.unique_name
  from judged l where l.over and l.dead
),
leaving as (
  insert into tenure.dead_letter_due as d (queue_id, id, ended_on)
  select $1, l.id, (select (now() at time zone 'utc')::date) from judged l where l.over and l.dead and l.leaves
),
ready as (
  insert into tenure.event as e (slot, queue_id, type, priority, low_rank, low_id, high_rank, high_id, ready, leased)
  select tenure.event_slot(), $1, 1, g.priority, min(g.rank), min(g.id), max(g.rank), max(g.id), count(*), -count(*)
  from given g group by g.priority
),
counted as (
  insert into tenure.event as e (slot, queue_id, type, leased, discarded)
  select tenure.event_slot(), $1, 2, -count(*), count(*) from judged l where l.over and l.dead having count(*) > 0
),
told as (
  insert into tenure.event as e (slot, queue_id, type, notice, worker, job_id, job_day, token, reason)
  select tenure.event_slot(), $1, 3, 2, l.worker, l.id, l.day, l.token, 'the lease ran out' from judged l where l.over
),
outbound as (
  insert into tenure.outbox as o (slot, queue_id, state, job_id, job_day, kind, tenant, attempt, failures, crashes, created_at, started_at,
    ended_at, error_message, error_type, effect_key, retry_of, headers)
  select (select tenure.event_slot()), $1, 7, l.id, l.day, l.kind, l.tenant, l.attempt, l.failures, l.crashes + 1, l.created_at, l.started_at,
    now(), 'the lease ran out ' || l.crashes + 1 || ' times: its worker died, hung or could not extend it', 'LeaseExpired', l.effect_key, l.retry_of, l.headers
  from judged l
  where l.over and l.dead and (select bit_or(i.events) from tenure.outbox_interest i where i.queue_id = any (array[0, $1])) & 2 <> 0
)
select l.id, l.over, l.over and l.dead as discarded, l.forgiven, l.priority, l.rank, l.queue_name,
       extract(epoch from l.ends_at - now())::float8 as remaining, l.concurrency_keys, l.group_key, l.awaited
from judged l;

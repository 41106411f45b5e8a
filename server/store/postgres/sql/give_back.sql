-- Release ($5 = 3) and Snooze ($5 = 4): leased jobs of one queue go back, ready at once or scheduled after a delay; no budget is spent.
-- $1 queue, $2 ids (sorted, distinct), $3 token numbers, $4 secrets, $6 delays in microseconds.
-- What goes back to ready keeps its slots; what is scheduled has to pass its gates again when it is due.
-- A released job that never began otherwise counts as not started, so that its time to live still holds.
-- Answers the ids that it settled; what is not answered is locked by somebody, or its token is stale.
with locked as materialized (
  select j.id, i.delay_us
  from unnest($2::bigint[], $3::int[], $4::bigint[], $6::bigint[]) as i (id, number, secret, delay_us)
  cross join lateral (
    select j.id from tenure.job j
    where j.id = i.id and j.queue_id = $1 and j.token = i.number and j.token_secret = i.secret and (j.state + 0) = 4
    for update skip locked
  ) j
),
back as materialized (
  select array_agg(l.id order by l.id) as ids, array_agg(l.delay_us order by l.id) as delays from locked l
),
given as (
  update tenure.job as j
  set state = case when (select b.delays from back b)[width_bucket(j.id, (select b.ids from back b))] <= 0 then 3 else 1 end,
      place = case when (select b.delays from back b)[width_bucket(j.id, (select b.ids from back b))] <= 0 then 3 else 1 end,
      gate = case when (select b.delays from back b)[width_bucket(j.id, (select b.ids from back b))] <= 0 then j.gate end,
      due_at = now() + (select b.delays from back b)[width_bucket(j.id, (select b.ids from back b))] * interval '1 microsecond',
      releases = j.releases + case when $5 = 3 then 1 else 0 end, snoozes = j.snoozes + case when $5 = 4 then 1 else 0 end,
      settled_token = j.token, settled_secret = j.token_secret, settled_verb = $5, token = j.token + 1,
      started_at = case when $5 = 3 and j.failures = 0 and j.crashes = 0 and j.snoozes = 0 then null else j.started_at end,
      worker = null, lease_us = null, lease_until = null, leased_at = null, updated_at = now()
  where j.queue_id = $1 and j.id = any ((select b.ids from back b)::bigint[])
  returning j.id, j.state, j.priority, j.rank, j.due_at, j.concurrency_keys, j.group_key
),
ready as (
  insert into tenure.event as e (slot, queue_id, type, priority, low_rank, low_id, high_rank, high_id, ready)
  select tenure.event_slot(), $1, 1, g.priority, min(g.rank), min(g.id), max(g.rank), max(g.id), count(*)
  from given g where g.state = 3 group by g.priority
),
counted as (
  insert into tenure.event as e (slot, queue_id, type, leased, scheduled, due_at)
  select tenure.event_slot(), $1, 2, -count(*), count(*) filter (where g.state = 1), min(g.due_at) filter (where g.state = 1)
  from given g having count(*) > 0
)
select g.id, g.state, g.priority, g.rank, g.due_at, extract(epoch from g.due_at - now())::float8 as due_in,
       pg_current_xact_id() as xid, g.concurrency_keys, g.group_key
from given g;

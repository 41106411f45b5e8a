-- Jobs of one queue that waited for others may go: to ready, to their first gate, or to scheduled if they are not due. $1 queue, $2 ids (sorted, distinct), whose
-- rows the caller has locked (lock_waiting.sql). The time in which a
-- job without an expiry has to start (start_within of its queue) begins. Tells what changed. Primary key of tenure.job.
with moved as (
  update tenure.job as j
  set state = case when j.due_at > now() then 1
                   when tenure.first_gate(j.group_key, j.concurrency_keys, (select q.gated from tenure.queue q where q.id = $1)) is null then 3 else 2 end,
      place = case when j.due_at > now() then 1
                   when tenure.first_gate(j.group_key, j.concurrency_keys, (select q.gated from tenure.queue q where q.id = $1)) is null then 3 else 2 end,
      gate = case when j.due_at <= now()
                  then tenure.first_gate(j.group_key, j.concurrency_keys, (select q.gated from tenure.queue q where q.id = $1)) end,
      expires_at = coalesce(j.expires_at, greatest(j.due_at, now())
        + (select q.start_within_us from tenure.queue q where q.id = $1) * interval '1 microsecond'),
      updated_at = now()
  where j.queue_id = $1 and j.id = any ($2::bigint[]) and (j.state + 0) = 2 and j.gate is null
  returning j.id, j.state, j.priority, j.rank, j.due_at, j.concurrency_keys, j.group_key
),
ready as (
  insert into tenure.event as e (slot, queue_id, type, priority, low_rank, low_id, high_rank, high_id, ready, blocked)
  select tenure.event_slot(), $1, 1, m.priority, min(m.rank), min(m.id), max(m.rank), max(m.id), count(*), -count(*)
  from moved m where m.state = 3 group by m.priority
),
later as (
  insert into tenure.event as e (slot, queue_id, type, scheduled, blocked, due_at)
  select tenure.event_slot(), $1, 2, count(*), -count(*), min(m.due_at) from moved m where m.state = 1 having count(*) > 0
)
select m.id, m.state, m.priority, m.rank, extract(epoch from m.due_at - now())::float8 as due_in, m.concurrency_keys, m.group_key,
       pg_current_xact_id() as xid
from moved m;

-- Due jobs become ready, or blocked if they have a gate to pass (state 2; queues with a gate of their own are few). $1, $2 name and term of the leader: nothing is written once the term is over; $3, $4 cursor (due, id), exclusive;
-- $5 limit. Reads the index job_due beyond the cursor. Answers row sorts: 0 what became ready, per queue and priority; 1 the
-- first key that was due and could not be had; 2 the last key read and how many; 3 when the next job is due; 4 the
-- transaction's now(); 5 what became blocked, per queue, keys and group.
with in_term as materialized (
  select true as yes from tenure.leader l where l.worker = $1 and l.term = $2 for share
),
candidate as materialized (
  select j.id, j.queue_id, j.due_at from tenure.job j
  where j.place = 1 and (j.due_at, j.id) > ($3::timestamptz, $4::bigint) and j.due_at <= now() and exists (select 1 from in_term)
  order by j.due_at, j.id limit $5
),
locked as materialized (
  select j.id from candidate c
  cross join lateral (
    select j.id from tenure.job j where j.id = c.id and j.queue_id = c.queue_id and (j.state + 0) = 1 and j.due_at <= now()
    for update skip locked
  ) j
),
moved as (
  update tenure.job as j
  set state = case when tenure.first_gate(j.group_key, j.concurrency_keys, j.queue_id = any (array(select q.id from tenure.queue q where q.gated))) is null
                   then 3 else 2 end,
      place = case when tenure.first_gate(j.group_key, j.concurrency_keys, j.queue_id = any (array(select q.id from tenure.queue q where q.gated))) is null
                   then 3 else 2 end,
      gate = tenure.first_gate(j.group_key, j.concurrency_keys, j.queue_id = any (array(select q.id from tenure.queue q where q.gated))),
      updated_at = now()
  where j.id = any (array(select l.id from locked l))
  returning j.id, j.queue_id, j.priority, j.rank, j.state, j.concurrency_keys, j.group_key
),
range as materialized (
  select m.queue_id, m.priority, min(m.rank) as low_rank, min(m.id) as low_id, max(m.rank) as high_rank, max(m.id) as high_id,
         count(*) as jobs
  from moved m where m.state = 3 group by m.queue_id, m.priority
),
told as (
  insert into tenure.event as e (slot, queue_id, type, priority, low_rank, low_id, high_rank, high_id, ready, scheduled)
  select tenure.event_slot(), r.queue_id, 1, r.priority, r.low_rank, r.low_id, r.high_rank, r.high_id, r.jobs, -r.jobs from range r
),
held as materialized (
  select m.queue_id, m.concurrency_keys, m.group_key, count(*) as jobs from moved m where m.state = 2
  group by m.queue_id, m.concurrency_keys, m.group_key
),
counted as (
  insert into tenure.event as e (slot, queue_id, type, blocked, scheduled)
  select tenure.event_slot(), h.queue_id, 2, sum(h.jobs), -sum(h.jobs) from held h group by h.queue_id
)
select 0 as row_sort, r.queue_id, r.priority, r.low_rank, r.low_id, r.high_rank, r.high_id, r.jobs, null::timestamptz as due_at, null::float8 as due_in,
       null::text[] as concurrency_keys, null::text as group_key
from range r
union all
(select 1, null, null, null, c.id, null, null, null, c.due_at, null, null, null from candidate c where c.id not in (select l.id from locked l)
 order by c.due_at, c.id limit 1)
union all
(select 2, null, null, null, c.id, null, null, count(*) over (), c.due_at, null, null, null from candidate c order by c.due_at desc, c.id desc limit 1)
union all
(select 3, null, null, null, null, null, null, null, j.due_at, extract(epoch from j.due_at - now())::float8, null, null
 from tenure.job j where j.place = 1 and j.due_at > now() order by j.due_at, j.id limit 1)
union all
select 4, null, null, null, null, null, null, null, now(), null, null, null
union all
select 5, h.queue_id, null, null, null, null, null, h.jobs, null, null, h.concurrency_keys, h.group_key from held h;

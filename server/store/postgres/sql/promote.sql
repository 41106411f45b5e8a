-- Due jobs become ready. $1, $2 name and term of the leader: nothing is written once the term is over; $3, $4 cursor (due, id), exclusive;
-- $5 limit. Reads the index job_due beyond the cursor. Answers row sorts: 0 what became ready, per queue and priority; 1 the
-- first key that was due and could not be had; 2 the last key read and how many; 3 when the next job is due; 4 the
-- transaction's now().
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
  update tenure.job as j set state = 3, updated_at = now() where j.id = any (array(select l.id from locked l))
  returning j.id, j.queue_id, j.priority, j.rank
),
range as materialized (
  select m.queue_id, m.priority, min(m.rank) as low_rank, min(m.id) as low_id, max(m.rank) as high_rank, max(m.id) as high_id,
         count(*) as jobs
  from moved m group by m.queue_id, m.priority
),
told as (
  insert into tenure.event as e (slot, queue_id, type, priority, low_rank, low_id, high_rank, high_id, ready, scheduled)
  select tenure.event_slot(), r.queue_id, 1, r.priority, r.low_rank, r.low_id, r.high_rank, r.high_id, r.jobs, -r.jobs from range r
)
select 0 as row_sort, r.queue_id, r.priority, r.low_rank, r.low_id, r.high_rank, r.high_id, r.jobs, null::timestamptz as due_at, null::float8 as due_in
from range r
union all
(select 1, null, null, null, c.id, null, null, null, c.due_at, null from candidate c where c.id not in (select l.id from locked l)
 order by c.due_at, c.id limit 1)
union all
(select 2, null, null, null, c.id, null, null, count(*) over (), c.due_at, null from candidate c order by c.due_at desc, c.id desc limit 1)
union all
(select 3, null, null, null, null, null, null, null, j.due_at, extract(epoch from j.due_at - now())::float8
 from tenure.job j where j.place = 1 and j.due_at > now() order by j.due_at, j.id limit 1)
union all
select 4, null, null, null, null, null, null, null, now(), null;

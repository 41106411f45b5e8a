-- How far a queue whose tenants take turns has come: its virtual time, the greatest start that was given out, where the next look at its tenants
-- begins; and for each priority how many jobs are ready and not claimed yet, and the first start among them. $1 queue, $2 counts at
-- most so many ready and leased jobs of each priority. Reads from the greatest rank down, not below the virtual time: what ended lately lies
-- below, and is passed over however long its dead index entries stay. Answers one row at the least. The caller holds the queue's turn. Index job_ready.
with recursive clock as materialized (
  select coalesce(max(c.virtual_time), 0) as virtual_time, coalesce(max(c.last_start), 0) as last_start, max(c.resume_after) as resume_after
  from tenure.fair_clock c where c.queue_id = $1
),
level as (
  (select j.priority from tenure.job j where j.queue_id = $1 and j.place = 3 order by j.priority desc limit 1)
  union all
  select n.priority from level l
  cross join lateral (
    select j.priority from tenure.job j where j.queue_id = $1 and j.place = 3 and j.priority < l.priority order by j.priority desc limit 1
  ) n
)
select c.virtual_time, c.last_start, c.resume_after, l.priority, w.ready, w.first_start
from clock c
left join lateral (select l.priority from level l) l on true
left join lateral (
  select count(*) filter (where r.state = 3) as ready, min(r.rank) filter (where r.state = 3) as first_start
  from (select j.state + 0 as state, j.rank from tenure.job j
        where j.queue_id = $1 and j.place = 3 and j.priority = l.priority and j.rank >= c.virtual_time
        order by j.rank desc, j.id desc limit $2) r
) w on true
order by l.priority desc;

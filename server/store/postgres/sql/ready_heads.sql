-- Which (queue, priority) have ready (or leased) jobs: a skip scan of the index job_ready, one probe for each pair.
with recursive head as (
  (select j.queue_id, j.priority from tenure.job j where j.place = 3 order by j.queue_id, j.priority limit 1)
  union all
  select n.queue_id, n.priority from head h
  cross join lateral (
    select j.queue_id, j.priority from tenure.job j
    where j.place = 3 and (j.queue_id, j.priority) > (h.queue_id, h.priority)
    order by j.queue_id, j.priority limit 1
  ) n
)
select h.queue_id, h.priority from head h;

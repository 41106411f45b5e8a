-- Whom a job of a group waits for: the one of the group that has passed, else the first of its live jobs before it. $1 queue, $2 group, $3 the
-- job. No row: it is its turn. Indexes job_group_passed and job_group.
select x.id, x.day, x.state, x.due_at from (
  (select 0 as nth, j.id, j.day, j.state, j.due_at from tenure.job j where j.queue_id = $1 and j.group_key = $2::text and j.gate <> 1 limit 1)
  union all
  (select 1, j.id, j.day, j.state, j.due_at from tenure.job j where j.queue_id = $1 and j.group_key = $2 and j.id + 0 < $3::bigint order by j.id + 0 limit 1)
) x
where x.id <> $3 order by x.nth limit 1;

-- Whom a job of a group waits for: the one of the group that has passed, else the first of its live jobs before it. $1 queue, $2 group, $3 the
-- job. No row: it is its turn. One that waits for a job further back is passed over (admission_groups.sql). Indexes job_group_passed and job_group.
select x.id, x.day, x.state, x.due_at from (
  (select 0 as nth, j.id, j.day, j.state, j.due_at from tenure.job j where j.queue_id = $1 and coalesce(j.group_key, '') = $2::text and coalesce(j.group_key, '') > '' and j.gate <> 1
   limit 1)
  union all
  (select 1, j.id, j.day, j.state, j.due_at from tenure.job j where j.queue_id = $1 and j.group_key = $2 and j.id + 0 < $3::bigint
     and case when (j.state + 0) = 2 and j.gate is null then (
           select true from tenure.dependency d
           cross join lateral (
             select 1 from tenure.job a where a.id = d.awaited_id and a.queue_id = $1 and a.group_key = $2 and a.id > j.id limit 1
           ) a
           where d.job_id + 0 = j.id and d.outcome is null limit 1) end is null
   order by j.id + 0 limit 1)
) x
where x.id <> $3 order by x.nth limit 1;

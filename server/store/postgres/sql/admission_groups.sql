-- The next of groups of one queue that may pass: the first of the group's live jobs, if it is the turn of one that is due and none of the group has
-- passed. $1 queue, $2 groups, $3 whether a job that waits for its time (a retry) is passed over; else it holds its group. Locks
-- nothing: admit.sql does. One that waits for a job further back in its group (only a move makes that) is passed over: else both would wait
-- for ever. (`limit 1` keeps each look one through the index.) Indexes job_group and job_group_passed.
select g.group_key, h.id, h.priority, h.gate, h.concurrency_keys from unnest($2::text[]) as g (group_key)
cross join lateral (
  select j.id, j.priority, j.state, j.gate, j.concurrency_keys from tenure.job j
  where j.queue_id = $1 and j.group_key = g.group_key and (not $3::boolean or (j.state + 0) <> 1)
    and case when (j.state + 0) = 2 and j.gate is null then (
          select true from tenure.dependency d
          cross join lateral (
            select 1 from tenure.job a where a.id = d.awaited_id and a.queue_id = $1 and a.group_key = g.group_key and a.id > j.id limit 1
          ) a
          where d.job_id + 0 = j.id and d.outcome is null limit 1) end is null
  order by j.id + 0 limit 1
) h
left join lateral (
  select true as yes from tenure.job j where j.queue_id = $1 and coalesce(j.group_key, '') = g.group_key and coalesce(j.group_key, '') > '' and j.gate <> 1 limit 1
) passed on true
where h.state = 2 and h.gate = 1 and passed.yes is null;

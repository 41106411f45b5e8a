-- Live jobs by id, without payloads held elsewhere. $1 queue, $2 ids. `limit 1` keeps each look-up one by primary key: without it the
-- planner may join with the whole table.
select j.* from unnest($2::bigint[]) as i (id)
cross join lateral (select j.* from tenure.job j where j.id = i.id and j.queue_id = $1 limit 1) j;

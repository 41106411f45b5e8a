-- Live jobs by id, without payloads held elsewhere. $1 queue, $2 ids.
select j.* from unnest($2::bigint[]) as i (id)
cross join lateral (select j.* from tenure.job j where j.id = i.id and j.queue_id = $1) j;

-- How many stand before a job in the line of its queue's gate, counted up to a bound. $1 queue, $2 its priority, $3 its id, $4 the bound. Index job_gate.
select count(*) as ahead from (
  select 1 from tenure.job j
  where j.queue_id = $1 and j.gate = 6 and (j.priority > $2::smallint or (j.priority = $2 and j.id < $3::bigint))
  order by j.priority desc, j.id limit $4
) c;

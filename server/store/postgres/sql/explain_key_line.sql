-- How many stand before a job in the line of a key, counted up to a bound. $1 queue, $2 key, $3 its priority, $4 its id, $5 the bound. Indexes
-- job_key_1 to job_key_4.
select count(*) as ahead from (
  select x.* from (
    (select 1 from tenure.job j where j.queue_id = $1 and j.concurrency_keys[1] = $2::text and j.gate = 2 and (j.priority > $3::smallint or (j.priority = $3 and j.id < $4::bigint)) order by j.priority desc, j.id limit $5)
    union all
    (select 1 from tenure.job j where j.queue_id = $1 and j.concurrency_keys[2] = $2 and j.gate = 3 and (j.priority > $3 or (j.priority = $3 and j.id < $4)) order by j.priority desc, j.id limit $5)
    union all
    (select 1 from tenure.job j where j.queue_id = $1 and j.concurrency_keys[3] = $2 and j.gate = 4 and (j.priority > $3 or (j.priority = $3 and j.id < $4)) order by j.priority desc, j.id limit $5)
    union all
    (select 1 from tenure.job j where j.queue_id = $1 and j.concurrency_keys[4] = $2 and j.gate = 5 and (j.priority > $3 or (j.priority = $3 and j.id < $4)) order by j.priority desc, j.id limit $5)
  ) x limit $5
) c;

-- Some of the jobs that hold a slot of a key. $1 queue, $2 key, $3 at most so many. Indexes job_key_1 to job_key_4.
select x.id, x.day from (
  (select j.id, j.day from tenure.job j where j.queue_id = $1 and j.concurrency_keys[1] = $2::text and j.gate = 0 limit $3)
  union all
  (select j.id, j.day from tenure.job j where j.queue_id = $1 and j.concurrency_keys[1] = $2::text and j.gate > 2 limit $3)
  union all
  (select j.id, j.day from tenure.job j where j.queue_id = $1 and j.concurrency_keys[2] = $2 and j.gate = 0 limit $3)
  union all
  (select j.id, j.day from tenure.job j where j.queue_id = $1 and j.concurrency_keys[2] = $2 and j.gate > 3 limit $3)
  union all
  (select j.id, j.day from tenure.job j where j.queue_id = $1 and j.concurrency_keys[3] = $2 and j.gate = 0 limit $3)
  union all
  (select j.id, j.day from tenure.job j where j.queue_id = $1 and j.concurrency_keys[3] = $2 and j.gate > 4 limit $3)
  union all
  (select j.id, j.day from tenure.job j where j.queue_id = $1 and j.concurrency_keys[4] = $2 and j.gate = 0 limit $3)
  union all
  (select j.id, j.day from tenure.job j where j.queue_id = $1 and j.concurrency_keys[4] = $2 and j.gate > 5 limit $3)
) x limit $3;

-- How many jobs hold each of some keys of one queue, counted up to a bound, from the rows. $1 queue, $2 keys, $3 the bound of each, $4 deep: whether
-- the queue has jobs that may hold a key and wait at a later gate (several keys, or a gate of the queue's own). The one who asks to admit holds
-- the queue's turn, taken in an earlier statement. Locks nothing. Indexes job_key_1 to job_key_4; a job that waits for a later key holds
-- those before it. (Two ranges each: of a list of gates the planner makes a filter, and reads who waits. Most queues are not deep: what is only
-- for those that are costs the others one look at $4.)
select k.key, h.held from unnest($2::text[], $3::int[]) as k (key, most)
cross join lateral (
  select count(*) as held from (
    select x.* from (
      (select 1 from tenure.job j where j.queue_id = $1 and j.concurrency_keys[1] = k.key and j.gate = 0 limit k.most)
      union all
      (select d.* from (
        (select 1 from tenure.job j where j.queue_id = $1 and j.concurrency_keys[1] = k.key and j.gate > 2 limit k.most)
        union all
        (select 1 from tenure.job j where (select exists (select 1 from tenure.job m where m.queue_id = $1 and m.concurrency_keys[2] > '' and m.gate is not null)) and j.queue_id = $1 and j.concurrency_keys[2] = k.key and j.gate = 0 limit k.most)
        union all
        (select 1 from tenure.job j where (select exists (select 1 from tenure.job m where m.queue_id = $1 and m.concurrency_keys[2] > '' and m.gate is not null)) and j.queue_id = $1 and j.concurrency_keys[2] = k.key and j.gate > 3 limit k.most)
        union all
        (select 1 from tenure.job j where (select exists (select 1 from tenure.job m where m.queue_id = $1 and m.concurrency_keys[3] > '' and m.gate is not null)) and j.queue_id = $1 and j.concurrency_keys[3] = k.key and j.gate = 0 limit k.most)
        union all
        (select 1 from tenure.job j where (select exists (select 1 from tenure.job m where m.queue_id = $1 and m.concurrency_keys[3] > '' and m.gate is not null)) and j.queue_id = $1 and j.concurrency_keys[3] = k.key and j.gate > 4 limit k.most)
        union all
        (select 1 from tenure.job j where (select exists (select 1 from tenure.job m where m.queue_id = $1 and m.concurrency_keys[4] > '' and m.gate is not null)) and j.queue_id = $1 and j.concurrency_keys[4] = k.key and j.gate = 0 limit k.most)
        union all
        (select 1 from tenure.job j where (select exists (select 1 from tenure.job m where m.queue_id = $1 and m.concurrency_keys[4] > '' and m.gate is not null)) and j.queue_id = $1 and j.concurrency_keys[4] = k.key and j.gate > 5 limit k.most)
      ) d where $4::boolean limit k.most)
    ) x limit k.most
  ) c
) h;

-- Who waits for keys of one queue, the first of each in the order in which they pass: higher priority first, then the order of enqueue.
-- $1 queue, $2 keys, $3 at most so many of each, $4 deep, as of admission_held.sql. Answers the keys of a job that has more than this one. Locks nothing: admit.sql does. Indexes job_key_1 to job_key_4.
select k.key, h.* from unnest($2::text[], $3::int[]) as k (key, most)
cross join lateral (
  select c.* from (
    (select j.id, j.priority, j.gate, case when j.concurrency_keys[2] is not null then j.concurrency_keys end as concurrency_keys from tenure.job j
     where j.queue_id = $1 and j.concurrency_keys[1] = k.key and j.gate = 2 order by j.priority desc, j.id limit k.most)
    union all
    (select d.* from (
    (select j.id, j.priority, j.gate, case when j.concurrency_keys[2] is not null then j.concurrency_keys end as concurrency_keys from tenure.job j
     where (select exists (select 1 from tenure.job m where m.queue_id = $1 and m.concurrency_keys[2] > '' and m.gate is not null)) and j.queue_id = $1 and j.concurrency_keys[2] = k.key and j.gate = 3 order by j.priority desc, j.id limit k.most)
    union all
    (select j.id, j.priority, j.gate, case when j.concurrency_keys[2] is not null then j.concurrency_keys end as concurrency_keys from tenure.job j
     where (select exists (select 1 from tenure.job m where m.queue_id = $1 and m.concurrency_keys[3] > '' and m.gate is not null)) and j.queue_id = $1 and j.concurrency_keys[3] = k.key and j.gate = 4 order by j.priority desc, j.id limit k.most)
    union all
    (select j.id, j.priority, j.gate, case when j.concurrency_keys[2] is not null then j.concurrency_keys end as concurrency_keys from tenure.job j
     where (select exists (select 1 from tenure.job m where m.queue_id = $1 and m.concurrency_keys[4] > '' and m.gate is not null)) and j.queue_id = $1 and j.concurrency_keys[4] = k.key and j.gate = 5 order by j.priority desc, j.id limit k.most)
    ) d where $4::boolean)
  ) c order by c.priority desc, c.id limit k.most
) h;

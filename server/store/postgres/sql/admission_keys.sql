-- How keys of one queue stand: limit, who holds them (counted up to the limit, from the rows), rate and pause. $1 queue, $2 keys. The one
-- who asks to admit holds the queue's turn, taken in an earlier statement. Locks nothing. Indexes job_key_1 to job_key_4; a job that
-- waits for a later key holds those before it. (Two ranges each: of a list of gates the planner makes a filter, and reads who waits. And
-- whether the queue has jobs with so many keys at all is asked once.) A key's own limit counts before that of the longest beginning.
select k.key, l.max_leased, l.rate_interval_us, l.rate_burst, h.held, extract(epoch from p.next_at - now())::float8 as next_in,
       extract(epoch from p.paused_until - now())::float8 as paused_for
from unnest($2::text[]) as k (key)
left join lateral (
  select x.* from (
    (select l.scope, l.max_leased, l.rate_interval_us, l.rate_burst from tenure.admission_limit l
     where l.queue_id = $1 and l.scope = 1 and l.key = k.key)
    union all
    (select l.scope, l.max_leased, l.rate_interval_us, l.rate_burst from tenure.admission_limit l
     where l.queue_id = $1 and l.scope = 2 and starts_with(k.key, l.key) order by length(l.key) desc limit 1)
  ) x order by x.scope limit 1
) l on true
left join lateral (
  select p.next_at, p.paused_until from tenure.admission_pace p
  where p.queue_id = $1 and p.key = k.key and (p.next_at > now() or p.paused_until > now()) limit 1
) p on true
cross join lateral (
  select count(*) as held from (
    select x.* from (
      (select 1 from tenure.job j where j.queue_id = $1 and j.concurrency_keys[1] = k.key and j.gate = 0 limit l.max_leased)
      union all
      (select 1 from tenure.job j where j.queue_id = $1 and j.concurrency_keys[1] = k.key and j.gate > 2 limit l.max_leased)
      union all
      (select 1 from tenure.job j where (select exists (select 1 from tenure.job m where m.queue_id = $1 and m.concurrency_keys[2] > '' and m.gate is not null)) and j.queue_id = $1 and j.concurrency_keys[2] = k.key and j.gate = 0 limit l.max_leased)
      union all
      (select 1 from tenure.job j where (select exists (select 1 from tenure.job m where m.queue_id = $1 and m.concurrency_keys[2] > '' and m.gate is not null)) and j.queue_id = $1 and j.concurrency_keys[2] = k.key and j.gate > 3 limit l.max_leased)
      union all
      (select 1 from tenure.job j where (select exists (select 1 from tenure.job m where m.queue_id = $1 and m.concurrency_keys[3] > '' and m.gate is not null)) and j.queue_id = $1 and j.concurrency_keys[3] = k.key and j.gate = 0 limit l.max_leased)
      union all
      (select 1 from tenure.job j where (select exists (select 1 from tenure.job m where m.queue_id = $1 and m.concurrency_keys[3] > '' and m.gate is not null)) and j.queue_id = $1 and j.concurrency_keys[3] = k.key and j.gate > 4 limit l.max_leased)
      union all
      (select 1 from tenure.job j where (select exists (select 1 from tenure.job m where m.queue_id = $1 and m.concurrency_keys[4] > '' and m.gate is not null)) and j.queue_id = $1 and j.concurrency_keys[4] = k.key and j.gate = 0 limit l.max_leased)
      union all
      (select 1 from tenure.job j where (select exists (select 1 from tenure.job m where m.queue_id = $1 and m.concurrency_keys[4] > '' and m.gate is not null)) and j.queue_id = $1 and j.concurrency_keys[4] = k.key and j.gate > 5 limit l.max_leased)
    ) x limit coalesce(l.max_leased, 0)
  ) c
) h;

-- How a queue admits: whether it has a gate of its own, whether it is deep (admission_held.sql), its limit, how many of its jobs are admitted
-- (counted up to the limit, from the rows), its rate and pause. $1 queue. The caller holds the queue's turn, taken in an earlier
-- statement. Locks nothing. Indexes job_ready, job_key_2.
select q.gated, q.fair_tenants, q.skip_retrying, l.max_leased, l.rate_interval_us, l.rate_burst, h.held,
       q.gated or exists (select 1 from tenure.job j where j.queue_id = $1 and j.concurrency_keys[2] > '' and j.gate is not null) as deep,
       extract(epoch from p.next_at - now())::float8 as next_in, extract(epoch from p.paused_until - now())::float8 as paused_for
from tenure.queue q
left join lateral (
  select l.max_leased, l.rate_interval_us, l.rate_burst from tenure.admission_limit l where l.queue_id = $1 and l.scope = 3 and l.key = '' limit 1
) l on true
left join lateral (
  select p.next_at, p.paused_until from tenure.admission_pace p
  where p.queue_id = $1 and p.key = '' and (p.next_at > now() or p.paused_until > now()) limit 1
) p on true
cross join lateral (
  select count(*) as held from (
    select 1 from tenure.job j where j.queue_id = $1 and j.place = 3 limit coalesce(l.max_leased, 0)
  ) c
) h
where q.id = $1;

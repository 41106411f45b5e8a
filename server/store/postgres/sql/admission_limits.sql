-- What limits keys of one queue, and what their rates and pauses remember. $1 queue, $2 keys. Answers rows of three sorts: 1 the limit of one of the keys,
-- 2 a limit by prefix (all of the queue's), 3 a rate or pause that is not past. Which limit counts for a key the caller decides. Locks nothing.
select 1 as row_sort, l.key, l.max_leased, l.rate_interval_us, l.rate_burst, null::float8 as next_in, null::float8 as paused_for
from unnest($2::text[]) as k (key)
cross join lateral (
  select l.* from tenure.admission_limit l where l.queue_id = $1 and l.scope = 1 and l.key = k.key limit 1
) l
where (select exists (select 1 from tenure.admission_limit m where m.queue_id = $1 and m.scope = 1))
union all
select 2, l.key, l.max_leased, l.rate_interval_us, l.rate_burst, null, null
from tenure.admission_limit l where l.queue_id = $1 and l.scope = 2
union all
select 3, p.key, null, null, null, extract(epoch from p.next_at - now())::float8, extract(epoch from p.paused_until - now())::float8
from unnest($2) as k (key)
cross join lateral (
  select p.* from tenure.admission_pace p
  where p.queue_id = $1 and p.key = k.key and (p.next_at > now() or p.paused_until > now()) limit 1
) p
where (select exists (select 1 from tenure.admission_pace m where m.queue_id = $1 and m.key > ''));

-- Remembers what turns were taken. $1 queue, $2 tenants (sorted, distinct), $3 the virtual time of the next start of each, $4 virtual time of the
-- queue, $5 the greatest start that was given out, $6 the tenant after which the next look begins (NULL: the first). The caller holds the queue's turn.
with shares as (
  insert into tenure.fair_share as s (queue_id, tenant, next_start)
  select $1, t.name, t.next_start from unnest($2::text[], $3::bigint[]) as t (name, next_start) order by t.name
  on conflict (queue_id, tenant) do update set next_start = excluded.next_start
)
insert into tenure.fair_clock as c (queue_id, virtual_time, last_start, resume_after) values ($1, $4, $5, $6)
on conflict (queue_id) do update
  set virtual_time = excluded.virtual_time, last_start = excluded.last_start, resume_after = excluded.resume_after;

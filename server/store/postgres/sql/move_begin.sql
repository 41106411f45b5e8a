-- Begins a step of a move: locks it, and says what it may move now. $1, $2 name and term of the leader, whose row stays locked to the end of the transaction: nothing
-- is answered, and nothing is to be written, once the term is over; $3 the move, $4 most jobs. Answers also those of the jobs it made that are still live, where they are
-- bounded (max_in_flight). In one transaction with move_backlog.sql or move_dead_letters.sql, and move_count.sql. Primary keys of tenure.leader, tenure.move, tenure.job.
with in_term as materialized (
  select true as yes from tenure.leader l where l.worker = $1 and l.term = $2 for share
),
move as materialized (
  select m.* from tenure.move m where m.id = $3 and m.state = 1 and exists (select 1 from in_term) for update
),
flying as materialized (
  select coalesce(array_agg(f.id order by f.id), '{}') as ids
  from move m
  cross join unnest(m.in_flight) as f (id)
  cross join lateral (select 1 from tenure.job j where j.id = f.id and j.queue_id = m.to_queue_id limit 1) j
)
select m.source, m.from_queue_id, m.to_queue_id, m.kinds, m.standing, m.cursor_id, m.created_at,
       -- What the rate allowed in the last second may come at once.
       greatest(0, least($4::bigint, coalesce(floor(m.rate * extract(epoch from now() - greatest(m.used_until, now() - interval '1 second')))::bigint, $4),
                         coalesce(m.max_in_flight - cardinality(f.ids), $4)))::bigint as allowed,
       f.ids as in_flight
from move m cross join flying f;

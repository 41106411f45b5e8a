-- Whether a backlog move from the queue $1 to $2 meets others under way, or paused, by which its jobs would come back to $1: the names on the way,
-- or no row. lock_rules.sql comes before, in the same transaction, and this is a statement of its own, whose snapshot is not older than that wait.
with recursive way as (
  select $2::int as queue_id, array[$1::int, $2::int] as passed
  union all
  select m.to_queue_id, w.passed || m.to_queue_id
  from way w join tenure.move m on m.from_queue_id = w.queue_id and m.source = 2 and m.state in (1, 2)
  where w.queue_id <> $1 and (m.to_queue_id = $1 or m.to_queue_id <> all (w.passed))
)
select array_to_string(array(select q.name from unnest(w.passed) with ordinality as p (id, n) join tenure.queue q on q.id = p.id order by p.n), ' -> ') as way
from way w where w.queue_id = $1 limit 1;

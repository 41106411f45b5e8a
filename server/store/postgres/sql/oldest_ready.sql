-- How long the first ready job beyond each cursor has been due. $1 queues, $2 priorities, $3/$4 cursors (rank, id). Answers in order;
-- no row where nothing is ready.
select r.ord, extract(epoch from now() - j.due_at)::float8 as age
from unnest($1::int[], $2::smallint[], $3::bigint[], $4::bigint[]) with ordinality as r (queue_id, priority, rank, id, ord)
cross join lateral (
  select j.due_at from tenure.job j
  where j.queue_id = r.queue_id and j.place = 3 and j.priority = r.priority and (j.rank, j.id) > (r.rank, r.id) and (j.state + 0) = 3
  order by j.rank, j.id limit 1
) j;

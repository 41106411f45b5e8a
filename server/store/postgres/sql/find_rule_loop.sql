-- Whether a rule of the queue $1 that leads to $2 comes back to $1: the names on its way, or no row. lock_rules.sql comes before, in the same transaction,
-- and this is a statement of its own, whose snapshot is not older than that wait. Reads by the unique index on name.
with recursive way as (
  select $2::text collate "C" as name, array[$1::text, $2::text] collate "C" as names
  union all
  select q.dead_letter_queue, w.names || q.dead_letter_queue
  from way w join tenure.queue q on q.name = w.name
  where w.name <> $1 and q.dead_letter_queue is not null and (q.dead_letter_queue = $1 or q.dead_letter_queue <> all (w.names))
)
select array_to_string(w.names, ' -> ') as way from way w where w.name = $1;

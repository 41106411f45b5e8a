-- $1 queue, $2 paused. lock_queue.sql comes before, in the same transaction.
with changed as (
  update tenure.queue as q set paused = $2 where q.id = $1 returning q.*
),
told as (
  insert into tenure.event as e (slot, queue_id, type) select tenure.event_slot(), c.id, 4 from changed c
)
select c.* from changed c;

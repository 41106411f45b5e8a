-- Takes a limit away. $1 queue, $2 scope, $3 key. The caller holds the queue's turn. Answers a row if there was one.
with gone as (
  delete from tenure.admission_limit as l where l.queue_id = $1 and l.scope = $2 and l.key = $3 returning l.queue_id
),
open as (
  update tenure.queue as q set gated = false where q.id = $1 and $2 = 3 and q.gated and not q.fair_tenants returning q.id
),
told as (
  insert into tenure.event as e (slot, queue_id, type) select tenure.event_slot(), o.id, 4 from open o
)
select g.queue_id from gone g;

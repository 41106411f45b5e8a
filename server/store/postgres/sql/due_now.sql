-- Retry of a scheduled job: due at once, and ready. $1 queue, $2 id, $3 day of enqueue. No row: it was not scheduled, or somebody has it locked.
with locked as materialized (
  select j.id from tenure.job j where j.id = $2 and j.queue_id = $1 and j.day = $3 and (j.state + 0) = 1 for update skip locked
),
moved as (
  update tenure.job as j set state = 3, due_at = now(), updated_at = now()
  where j.queue_id = $1 and j.id = any (array(select l.id from locked l))
  returning j.id, j.priority, j.rank
),
told as (
  insert into tenure.event as e (slot, queue_id, type, priority, low_rank, low_id, high_rank, high_id, ready, scheduled)
  select tenure.event_slot(), $1, 1, m.priority, m.rank, m.id, m.rank, m.id, 1, -1 from moved m
)
select m.id from moved m;

-- Retry of a scheduled job: due at once, and ready, or blocked if it has a gate to pass. $1 queue, $2 id, $3 day of enqueue. No row: it was not scheduled, or somebody has it locked.
with locked as materialized (
  select j.id from tenure.job j where j.id = $2 and j.queue_id = $1 and j.day = $3 and (j.state + 0) = 1 for update skip locked
),
moved as (
  update tenure.job as j
  set state = case when tenure.first_gate(j.group_key, j.concurrency_keys, (select q.gated from tenure.queue q where q.id = $1)) is null then 3 else 2 end,
      place = case when tenure.first_gate(j.group_key, j.concurrency_keys, (select q.gated from tenure.queue q where q.id = $1)) is null then 3 else 2 end,
      gate = tenure.first_gate(j.group_key, j.concurrency_keys, (select q.gated from tenure.queue q where q.id = $1)),
      due_at = now(), updated_at = now()
  where j.queue_id = $1 and j.id = any (array(select l.id from locked l))
  returning j.id, j.priority, j.rank, j.state, j.concurrency_keys, j.group_key
),
told as (
  insert into tenure.event as e (slot, queue_id, type, priority, low_rank, low_id, high_rank, high_id, ready, scheduled)
  select tenure.event_slot(), $1, 1, m.priority, m.rank, m.id, m.rank, m.id, 1, -1 from moved m where m.state = 3
),
counted as (
  insert into tenure.event as e (slot, queue_id, type, blocked, scheduled) select tenure.event_slot(), $1, 2, 1, -1 from moved m where m.state = 2
)
select m.id, m.state, m.concurrency_keys, m.group_key from moved m;

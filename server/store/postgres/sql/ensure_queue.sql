-- Makes a queue with default settings unless it exists. $1 name. No row: it exists. Waits for a transaction that has made it and not
-- committed, up to lock_timeout.
with made as (
  insert into tenure.queue as q (name) values ($1) on conflict (name) do nothing returning q.*
),
told as (
  insert into tenure.event as e (slot, queue_id, type) select tenure.event_slot(), m.id, 4 from made m
)
select m.* from made m;

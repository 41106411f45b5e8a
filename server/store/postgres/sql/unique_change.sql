-- Changes jobs that have not been claimed: another payload, content type and headers, or another due time. $1 queue, $2 ids (sorted, distinct), $3 whether
-- the payload is replaced, $4 payloads, $5 content types, $6 headers, $7 whether the due time is, $8 due times, $9 delays in microseconds, and with it
-- $10 when it expires, $11 or after how many microseconds (neither: as its queue says).
-- One that was ready or blocked and is now due later is scheduled: its slots become free, and its rank stays. One that was scheduled and
-- is now due is ready, or blocked at its first gate. One that waits for other jobs goes on waiting. Tells what changed state, and when the
-- first is due. The caller has locked the rows (unique_hold.sql). Primary key of tenure.job.
with input as materialized (
  select i.*, length(i.payload) as size, greatest(coalesce(i.due, now() + i.delay_us * interval '1 microsecond'), now()) as new_due,
         coalesce(i.expires, now() + i.ttl_us * interval '1 microsecond',
                  greatest(coalesce(i.due, now() + i.delay_us * interval '1 microsecond'), now())
                    + (select q.start_within_us from tenure.queue q where q.id = $1) * interval '1 microsecond') as new_expires,
         (select q.gated from tenure.queue q where q.id = $1) as gated
  from unnest($2::bigint[], $3::boolean[], $4::bytea[], $5::text[], $6::text[], $7::boolean[], $8::timestamptz[], $9::bigint[],
              $10::timestamptz[], $11::bigint[])
       as i (id, replaces, payload, content_type, headers, reschedules, due, delay_us, expires, ttl_us)
),
before as materialized (
  select i.*, j.state, j.gate, j.priority, j.rank, j.due_at, j.expires_at, j.payload as old_payload, j.payload_day, j.payload_size, j.content_type as old_type,
         j.headers as old_headers, j.concurrency_keys, j.group_key,
         case when not i.reschedules or (j.state = 2 and j.gate is null) then j.state
              when i.new_due > now() then 1::smallint
              when j.state <> 1 then j.state
              when tenure.first_gate(j.group_key, j.concurrency_keys, i.gated) is null then 3::smallint else 2::smallint end as to_state
  from input i
  cross join lateral (
    select j.* from tenure.job j
    where j.id = i.id and j.queue_id = $1 and (j.state + 0) in (1, 2, 3) for no key update
  ) j
),
after as materialized (
  select b.*, case when b.to_state = 1 then null
                   when b.state = 1 and b.to_state = 2 then tenure.first_gate(b.group_key, b.concurrency_keys, b.gated) else b.gate end as to_gate
  from before b
),
changed as (
  update tenure.job as j
  set (state, place, gate, due_at, expires_at, payload, payload_day, payload_size, content_type, headers) = (
        select a.to_state, a.to_state, a.to_gate, case when a.reschedules then a.new_due else a.due_at end,
               case when a.reschedules then a.new_expires else a.expires_at end,
               case when not a.replaces then a.old_payload when a.size <= 1000 then a.payload end,
               case when not a.replaces then a.payload_day when a.size > 1000 then tenure.today() end,
               case when a.replaces then a.size else a.payload_size end,
               case when a.replaces then a.content_type else a.old_type end,
               case when a.replaces then a.headers::jsonb else a.old_headers end
        from after a where a.id = j.id),
      updated_at = now()
  where j.queue_id = $1 and j.id = any (array(select a.id from after a))
),
large as (
  insert into tenure.payload as p (day, id, queue_id, data) select tenure.today(), a.id, $1, a.payload from after a where a.replaces and a.size > 1000
  on conflict (id, day) do update set data = excluded.data
),
ready as (
  insert into tenure.event as e (slot, queue_id, type, priority, low_rank, low_id, high_rank, high_id, ready, scheduled)
  select tenure.event_slot(), $1, 1, a.priority, min(a.rank), min(a.id), max(a.rank), max(a.id), count(*), -count(*)
  from after a where a.state = 1 and a.to_state = 3 group by a.priority
),
counted as (
  insert into tenure.event as e (slot, queue_id, type, scheduled, blocked, ready, due_at)
  select tenure.event_slot(), $1, 2,
         count(*) filter (where a.state <> 1 and a.to_state = 1) - count(*) filter (where a.state = 1 and a.to_state = 2),
         count(*) filter (where a.state = 1 and a.to_state = 2) - count(*) filter (where a.state = 2 and a.to_state = 1),
         -count(*) filter (where a.state = 3 and a.to_state = 1), min(a.new_due) filter (where a.to_state = 1)
  from after a where a.reschedules and (a.to_state = 1 or a.state <> a.to_state) having count(*) > 0
)
select a.id, a.state, a.to_state, a.priority, a.rank, extract(epoch from a.new_due - now())::float8 as due_in, a.concurrency_keys, a.group_key,
       pg_current_xact_id() as xid
from after a;

-- Moves a target's place behind what was taken, and keeps what was refused of it, in one. $1, $2 leader, $3 target, $4, $5 the place before, $6, $7 the one after, $8 the
-- window ends there, $9 events taken, $10 error of the target (empty: none); of what was refused: $11 event ids, $12 bodies, $13 errors, $14 when again, in microseconds, $15 never again.
with in_term as materialized (
  select true as yes from tenure.leader l where l.worker = $1 and l.term = $2 for share
),
moved as (
  update tenure.target_state as s
  set done = case when $8 then s.until else s.done end, until = case when $8 then null else s.until end,
      at_xid = case when $8 then '0'::xid8 else $6::text::xid8 end, at_id = case when $8 then 0 else $7::bigint end,
      plan_xid = null, plan_id = null, plan_count = null, plan_queue_ids = null, plan_events = null, taken = s.taken + $9::bigint,
      last_success_at = case when $9 > 0 and $10 = '' then now() else s.last_success_at end,
      last_error_at = case when $10 <> '' then now() else s.last_error_at end, last_error = case when $10 <> '' then $10 when $9 > 0 then '' else s.last_error end
  where s.target_id = $3 and s.until is not null and s.at_xid = $4::text::xid8 and s.at_id = $5::bigint and exists (select 1 from in_term)
  returning s.target_id
),
refused as (
  insert into tenure.delivery as d (target_id, event_id, body, attempts, due_at, last_error, dead)
  select m.target_id, i.event_id, i.body, 1, now() + i.retry_us * interval '1 microsecond', i.error, i.dead
  from moved m cross join unnest($11::text[], $12::text[], $13::text[], $14::bigint[], $15::boolean[]) as i (event_id, body, error, retry_us, dead)
)
select exists (select 1 from in_term) as in_term, exists (select 1 from moved) as moved;

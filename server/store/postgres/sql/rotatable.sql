-- Which event slot may be emptied: the one that is written next, if all its rows were visible in the snapshot of the last
-- rotation. $1 that snapshot. The caller holds the slot's lock, so nobody is still writing to it.
select s.slot, not exists (
  select 1 from tenure.event e where e.slot = s.slot and not pg_visible_in_snapshot(e.xid, $1::text::pg_snapshot)
) as free
from (select ((tenure.event_slot() + 1) % 4)::smallint as slot) s;

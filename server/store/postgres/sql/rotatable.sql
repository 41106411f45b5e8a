-- Which event slot may be emptied: the one that is written next, if all its rows were visible in the snapshot of the last
-- rotation. $1 that snapshot. The caller holds the slot's lock, so nobody is still writing to it. Reads the index event_xid from the
-- snapshot's oldest transaction on: what is older is visible in it.
select s.slot, not exists (
  select 1 from tenure.event e where e.slot = s.slot and e.xid >= pg_snapshot_xmin($1::text::pg_snapshot)
    and not pg_visible_in_snapshot(e.xid, $1::text::pg_snapshot)
) as free
from (select ((tenure.event_slot() + 1) % 4)::smallint as slot) s;

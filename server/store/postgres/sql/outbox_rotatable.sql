-- Which outbox slot may be emptied: the one that is written next, if all its rows are visible in the snapshot of every target that takes events, paused or not. The
-- caller holds the slot's lock, so nobody is still writing to it. Reads the index on (xid, id) from the oldest of those snapshots on.
select s.slot, exists (select 1 from tenure.outbox e where e.slot = s.slot and e.xid >= '0'::xid8) as filled, not exists (
  select 1 from tenure.outbox e
  where e.slot = s.slot
    and e.xid >= (select pg_snapshot_xmin(p.done) from tenure.target_state p join tenure.target t on t.id = p.target_id
                 where t.events <> 0 order by pg_snapshot_xmin(p.done) limit 1)
    and exists (select 1 from tenure.target_state p join tenure.target t on t.id = p.target_id
                where t.events <> 0 and not pg_visible_in_snapshot(e.xid, p.done))
) as free
from (select ((tenure.event_slot() + 1) % 4)::smallint as slot) s;

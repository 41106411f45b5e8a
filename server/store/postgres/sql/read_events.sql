-- The events of transactions that became visible since an earlier snapshot: those that were in progress then, and those that
-- began after. $1 the earlier snapshot's in-progress xids, $2 its xmax. Two ranges of the index event_xid. The snapshot that the
-- answer holds for comes with each row; one row without an event comes first, so that there is one even when nothing happened.
select pg_current_snapshot()::text as snapshot, now() as now, f.horizon, e.*
from tenure.event_fold f
left join lateral (
  select e.* from tenure.event e where e.xid = any ($1::text::xid8[])
  union all
  select e.* from tenure.event e where e.xid >= $2::text::xid8
) e on true;

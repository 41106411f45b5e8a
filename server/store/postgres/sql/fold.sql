-- Adds the counts of the events newly visible since the folded snapshot, and moves the folded snapshot to this statement's.
-- $1 its in-progress xids, $2 its xmax, $3 move it even if nothing has happened: before a slot is emptied, since a replica that starts from a
-- snapshot as old as the emptied rows could not know that it has missed nothing. lock_fold.sql holds the row, in an earlier statement.
with fresh as materialized (
  select e.* from tenure.event e where e.xid = any ($1::text::xid8[])
  union all
  select e.* from tenure.event e where e.xid >= $2::text::xid8
),
summed as (
  select e.queue_id, sum(e.scheduled) as scheduled, sum(e.blocked) as blocked, sum(e.ready) as ready, sum(e.leased) as leased,
         sum(e.suspended) as suspended, sum(e.completed) as completed, sum(e.discarded) as discarded,
         sum(e.cancelled) as cancelled, sum(e.expired) as expired, sum(e.enqueued) as enqueued
  from fresh e where e.type in (1, 2) group by e.queue_id
),
added as (
  insert into tenure.queue_count as c (queue_id, scheduled, blocked, ready, leased, suspended, completed, discarded, cancelled, expired, enqueued)
  select s.queue_id, coalesce(s.scheduled, 0), coalesce(s.blocked, 0), coalesce(s.ready, 0), coalesce(s.leased, 0),
         coalesce(s.suspended, 0), coalesce(s.completed, 0), coalesce(s.discarded, 0), coalesce(s.cancelled, 0),
         coalesce(s.expired, 0), coalesce(s.enqueued, 0)
  from summed s
  on conflict (queue_id) do update set
    scheduled = c.scheduled + excluded.scheduled, blocked = c.blocked + excluded.blocked, ready = c.ready + excluded.ready,
    leased = c.leased + excluded.leased, suspended = c.suspended + excluded.suspended, completed = c.completed + excluded.completed,
    discarded = c.discarded + excluded.discarded, cancelled = c.cancelled + excluded.cancelled,
    expired = c.expired + excluded.expired, enqueued = c.enqueued + excluded.enqueued
)
update tenure.event_fold as f set folded = pg_current_snapshot() where f.one and ($3::boolean or exists (select 1 from fresh));

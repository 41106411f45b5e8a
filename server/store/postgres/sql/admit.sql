-- Moves blocked jobs of one queue through their gates, some to ready; tells what became ready. $1 queue, $2 ids (distinct), $3 the gate
-- at which each stands, $4 the one that it goes to (0: ready), $5 its rank then (0: the next
-- of tenure.admission_rank). The caller holds the queue's turn (admission_turn.sql) and has
-- counted in a statement before this one. Answers a stretch for each priority of what is ready now and of what went on to another gate; and, if there
-- are such, one row with the ids that did not move: somebody has locked them (a cancel, a change of what waits), or has changed them meanwhile.
-- All that becomes ready without a rank of its own gets one, beyond all that was admitted before: a claim finds it in one stretch, in the order
-- of enqueue. (By ctid: a row that is locked stays where it is. One that was changed after the statement's snapshot and before it was locked
-- answers the ctid of a version that the update does not see: it is one of those that did not move.)
with locked as materialized (
  select j.at, i.to_gate, i.rank from unnest($2::bigint[], $3::smallint[], $4::smallint[], $5::bigint[]) as i (id, gate, to_gate, rank)
  cross join lateral (
    select j.ctid as at from tenure.job j where j.id = i.id and j.queue_id = $1 and j.gate = i.gate and (j.state + 0) = 2
    for update skip locked
  ) j
),
next as materialized (select nextval('tenure.admission_rank') as rank),
moved as (
  update tenure.job as j
  set gate = l.to_gate, state = case when l.to_gate = 0 then 3 else 2 end, place = case when l.to_gate = 0 then 3 else 2 end,
      rank = case when l.to_gate <> 0 then j.rank when l.rank <> 0 then l.rank else (select n.rank from next n) end,
      updated_at = now()
  from locked l where j.ctid = l.at
  returning j.id, j.priority, j.rank, j.gate
),
stretch as materialized (
  select m.gate = 0 as ready, m.priority, min(m.rank) as low_rank, min(m.id) as low_id, max(m.rank) as high_rank, max(m.id) as high_id, count(*) as jobs
  from moved m group by 1, 2
),
told as (
  insert into tenure.event as e (slot, queue_id, type, priority, low_rank, low_id, high_rank, high_id, ready, blocked)
  select tenure.event_slot(), $1, 1, s.priority, s.low_rank, s.low_id, s.high_rank, s.high_id, s.jobs, -s.jobs
  from stretch s where s.ready
)
select s.*, null::bigint[] as held_up, pg_current_xact_id() as xid from stretch s
union all
select null, null, null, null, null, null, null, array(select i.id from unnest($2) as i (id) where i.id not in (select m.id from moved m)), null
where (select count(*) from moved) < cardinality($2);

-- Moves blocked jobs of one queue through their gates, some to ready; tells what became ready. $1 queue, $2 ids (sorted, distinct), $3 the gate
-- at which each stands, $4 the one that it goes to (0: ready), $5 its rank then (0: the next
-- of tenure.admission_rank). The caller holds the queue's turn (admission_turn.sql) and has
-- counted in a statement before this one. Passes over what somebody has locked (a cancel): what is not answered did not move.
-- All that becomes ready without a rank of its own gets one, beyond all that was admitted before: a claim finds it in one stretch, in the order
-- of enqueue.
with locked as materialized (
  select j.id, i.to_gate, i.rank from unnest($2::bigint[], $3::smallint[], $4::smallint[], $5::bigint[]) as i (id, gate, to_gate, rank)
  cross join lateral (
    select j.id from tenure.job j where j.id = i.id and j.queue_id = $1 and j.gate = i.gate and (j.state + 0) = 2
    for update skip locked
  ) j
),
input as materialized (
  select array_agg(l.id order by l.id) as ids, array_agg(l.to_gate order by l.id) as gates,
         array_agg(case when l.rank = 0 then n.rank else l.rank end order by l.id) as ranks
  from locked l cross join (select nextval('tenure.admission_rank') as rank) n
),
moved as (
  update tenure.job as j
  set gate = (select i.gates from input i)[width_bucket(j.id, (select i.ids from input i))],
      state = case when (select i.gates from input i)[width_bucket(j.id, (select i.ids from input i))] = 0 then 3 else 2 end,
      place = case when (select i.gates from input i)[width_bucket(j.id, (select i.ids from input i))] = 0 then 3 else 2 end,
      rank = case when (select i.gates from input i)[width_bucket(j.id, (select i.ids from input i))] = 0
                  then (select i.ranks from input i)[width_bucket(j.id, (select i.ids from input i))] else j.rank end,
      updated_at = now()
  where j.queue_id = $1 and j.id = any ((select i.ids from input i)::bigint[])
  returning j.id, j.priority, j.rank, j.gate
),
told as (
  insert into tenure.event as e (slot, queue_id, type, priority, low_rank, low_id, high_rank, high_id, ready, blocked)
  select tenure.event_slot(), $1, 1, m.priority, min(m.rank), min(m.id), max(m.rank), max(m.id), count(*), -count(*)
  from moved m where m.gate = 0 group by m.priority
)
select m.id, m.priority, m.rank, m.gate, pg_current_xact_id() as xid from moved m;

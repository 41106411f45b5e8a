-- Sends ready jobs of one queue back to its gate, those at the end of the queue first: claims read at its beginning. What they have passed before
-- (keys, a group) they keep. $1 queue, $2 to $4 read below (priority, rank, id), $5 at most so many ready and leased jobs are read, $6 what became
-- ready before this time has not passed the gate as it is now; nor has what is ready without a gate and was never claimed: it was enqueued by somebody
-- who did not know. What comes back by a release keeps its turn. Passes over what somebody has locked. The caller holds the queue's turn, and waits for the
-- queue's claims (lock_queue.sql) before it commits: what is sent back may be admitted at once with another rank, and a claim that began before
-- would take that for how far it has read. Answers how many were read, sent back, and passed over, and the last key that was read. Index job_ready.
with seen as materialized (
  select j.priority, j.rank, j.id, (j.state + 0) = 3 and ((j.gate is null and j.attempt = 0) or j.updated_at < $6::timestamptz) as due
  from tenure.job j
  where j.queue_id = $1 and j.place = 3 and (j.priority, j.rank, j.id) < ($2::smallint, $3::bigint, $4::bigint)
  order by j.priority desc, j.rank desc, j.id desc limit $5
),
locked as materialized (
  select j.id from seen s
  cross join lateral (
    select j.id from tenure.job j
    where j.id = s.id and j.queue_id = $1 and (j.state + 0) = 3 and ((j.gate is null and j.attempt = 0) or j.updated_at < $6)
    for update skip locked
  ) j
  where s.due
),
sent as (
  update tenure.job as j set state = 2, place = 2, gate = 6, updated_at = now()
  where j.queue_id = $1 and j.id = any (array(select l.id from locked l))
  returning j.id
),
told as (
  insert into tenure.event as e (slot, queue_id, type, ready, blocked)
  select tenure.event_slot(), $1, 2, -count(*), count(*) from sent having count(*) > 0
)
select (select count(*) from seen) as read, (select count(*) from sent) as sent,
       (select count(*) from seen s where s.due) - (select count(*) from sent) as passed_over, e.priority, e.rank, e.id
from (select 1) one
left join (select s.priority, s.rank, s.id from seen s order by s.priority, s.rank, s.id limit 1) e on true;

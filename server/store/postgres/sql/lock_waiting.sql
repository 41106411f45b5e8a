-- Locks jobs that wait for others, to the end of the transaction: who counts the end of one of those others, and decides, is alone. $1 queue, $2 ids
-- (sorted, distinct). Passes over those that somebody holds, and answers for each id whether it is locked, or else whether it waits still. Primary
-- key of tenure.job. (The second look has the same snapshot: one that ended since is found by the next look.)
with locked as materialized (
  select j.id from unnest($2::bigint[]) with ordinality as i (id, ord)
  cross join lateral (
    select j.id from tenure.job j where j.id = i.id and j.queue_id = $1 and (j.state + 0) = 2 and j.gate is null for update skip locked
  ) j
)
select i.id, i.id in (select l.id from locked l) as locked, waiting.yes is not null as waits
from unnest($2::bigint[]) as i (id)
left join lateral (
  select true as yes from tenure.job j where j.id = i.id and j.queue_id = $1 and (j.state + 0) = 2 and j.gate is null limit 1
) waiting on true;

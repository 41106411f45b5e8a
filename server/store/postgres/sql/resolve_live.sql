-- What the live rows say about tokens. $1 queue, $2 ids. Reads by primary key (`limit 1` keeps it from becoming a join with the
-- whole table), locks nothing.
select j.id, j.state, j.token, j.token_secret, j.settled_token, j.settled_secret, j.settled_verb, j.due_at, j.worker, j.lease_until, j.day
from unnest($2::bigint[]) as i (id)
cross join lateral (select j.* from tenure.job j where j.id = i.id and j.queue_id = $1 limit 1) j;

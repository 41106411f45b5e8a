-- What history and the dead letters say about ids. $1 ids, $2 the earliest day on which any of them can have ended (prunes the partitions).
select h.id, h.state, h.token, h.token_secret, h.settled_verb, h.queue_id, h.day from tenure.history h where h.id = any ($1::bigint[]) and h.ended_on >= $2::date
union all
select h.id, h.state, h.token, h.token_secret, h.settled_verb, h.queue_id, h.day from tenure.dead_letter h where h.id = any ($1::bigint[]) and h.ended_on >= $2::date;

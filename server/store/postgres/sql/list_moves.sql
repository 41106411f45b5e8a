-- Moves with the names of their queues, the newest first. $1 an id (NULL: all), $2 only below this id (0: any), $3 limit. By primary key.
select m.id, f.name as from_name, t.name as to_name, m.source, m.kinds, m.rate, m.max_in_flight, m.state, m.moved, m.failed, m.last_error,
       m.created_at, m.updated_at, m.ended_at, m.standing
from tenure.move m join tenure.queue f on f.id = m.from_queue_id join tenure.queue t on t.id = m.to_queue_id
where ($1::bigint is null or m.id = $1) and ($2::bigint = 0 or m.id < $2)
order by m.id desc limit $3;

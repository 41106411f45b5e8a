-- Makes a move. $1 request id (NULL: none), $2 from queue, $3 to queue, $4 source, $5 kinds, $6 rate, $7 max in flight. No row: the request id
-- has been used (find_move_request.sql).
insert into tenure.move as m (request_id, from_queue_id, to_queue_id, source, kinds, rate, max_in_flight, used_until, created_at, updated_at)
values ($1, $2, $3, $4, $5, $6, $7, now(), now(), now())
on conflict (request_id) do nothing
returning m.id;

-- The move that a request id made. $1 request id.
select m.id from tenure.move m where m.request_id = $1;

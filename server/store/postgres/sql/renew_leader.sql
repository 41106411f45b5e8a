-- $1 worker, $2 term, $3 lease in microseconds. No row: the term is over.
update tenure.leader as l set expires_at = now() + $3::bigint * interval '1 microsecond'
where l.worker = $1 and l.term = $2 and l.expires_at > now() returning l.term;

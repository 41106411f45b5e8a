-- $1 worker, $2 term.
update tenure.leader as l set expires_at = '-infinity', replica_id = null, holder = '' where l.worker = $1 and l.term = $2;

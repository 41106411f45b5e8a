-- The database could not be reached for so long, until now. $1 length in microseconds.
insert into tenure.outage as o (began_at, ended_at) values (now() - $1::bigint * interval '1 microsecond', now());

-- $1 name, $2 version, $3 lease in microseconds. If no daemon has been alive for a while, the gap is an outage: leases that ran
-- out in it are forgiven.
with gap as materialized (
  select max(r.heartbeat_at) as last from tenure.replica r
),
noted as (
  insert into tenure.outage as o (began_at, ended_at) select g.last, now() from gap g where g.last < now() - interval '5 seconds'
)
insert into tenure.replica as r (name, version, lease_until) values ($1, $2, now() + $3::bigint * interval '1 microsecond') returning r.id;

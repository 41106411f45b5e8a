-- Forgets grants none of whose leases stands any more. $1 grants.
delete from tenure.lease_grant as g where g.id = any ($1::bigint[]);

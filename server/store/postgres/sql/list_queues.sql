-- $1 names after this, $2 that start so, $3 limit. Reads by the unique index on name.
select q.* from tenure.queue q where q.name > $1 and starts_with(q.name, $2) order by q.name limit $3;

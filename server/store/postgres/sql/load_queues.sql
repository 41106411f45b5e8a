-- $1 ids.
select q.* from tenure.queue q where q.id = any ($1::int[]);

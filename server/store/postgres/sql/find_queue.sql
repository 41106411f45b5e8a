-- $1 name.
select q.* from tenure.queue q where q.name = $1;

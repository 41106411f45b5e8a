-- $1 name.
select s.*, q.name as queue from tenure.schedule s join tenure.queue q on q.id = s.queue_id where s.name = $1;

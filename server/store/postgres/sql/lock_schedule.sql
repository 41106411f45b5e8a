-- A schedule, to be changed in this transaction: locks its row, and so waits for one that is firing. $1 name.
select s.*, q.name as queue from tenure.schedule s join tenure.queue q on q.id = s.queue_id where s.name = $1 for update of s;

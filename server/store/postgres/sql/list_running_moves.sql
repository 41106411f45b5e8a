-- The moves that run, oldest first. Reads the index move_running.
select m.id from tenure.move m where m.state = 1 order by m.id limit 100;

-- The moves that run, oldest first; and the standing ones of those with something to move, the one that has waited longest first. Reads the
-- indexes move_running and move_standing, and for each rule the primary key of tenure.dead_letter_due.
(select m.id from tenure.move m where m.state = 1 and not m.standing order by m.id limit 100)
union all
(select m.id from tenure.move m
 cross join lateral (select 1 from tenure.dead_letter_due d where d.queue_id = m.from_queue_id limit 1) d
 where m.standing and m.state = 1
 order by m.updated_at, m.id limit 100);

-- $1 id, $2 paused, $3 next slot (NULL if paused). lock_schedule.sql comes before, in the same transaction.
update tenure.schedule as s set version = s.version + 1, updated_at = now(), paused = $2, next_at = $3 where s.id = $1;

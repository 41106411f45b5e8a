-- $1 id, $2 paused. lock_target.sql comes before, in the same transaction.
update tenure.target as t set version = t.version + 1, updated_at = now(), paused = $2 where t.id = $1 and t.paused <> $2;

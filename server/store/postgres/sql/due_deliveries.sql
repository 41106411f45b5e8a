-- Deliveries of a target that are to be sent again now. $1 target, $2 limit. Reads the index delivery_due.
select d.* from tenure.delivery d where d.target_id = $1 and not d.dead and d.due_at <= now() order by d.due_at, d.id limit $2;

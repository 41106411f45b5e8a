-- After a slot was looked at: the next one in ten minutes.
update tenure.outbox_rotation as r set rotated_at = now() where r.one;

-- After a slot was emptied: readers older than the snapshot its rows were checked against must start anew.
update tenure.event_fold as f set rotated = f.folded, rotated_at = now(), horizon = pg_snapshot_xmax($1::text::pg_snapshot) where f.one;

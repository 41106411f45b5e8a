-- Where a replica starts: the folded counts and the snapshot they hold for. One row at least.
select f.folded::text as snapshot, c.* from tenure.event_fold f left join tenure.queue_count c on true;

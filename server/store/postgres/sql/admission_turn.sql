-- The queue's turn to admit: held to the transaction's end, so that what is counted in its later statements stands. $1 queue. Waits for
-- another replica's admission of the same queue, which is a few milliseconds. No row: admission_begin.sql makes it.
select 1 from tenure.admission_turn t where t.queue_id = $1 for update;

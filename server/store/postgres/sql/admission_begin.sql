-- Makes the row that is locked to admit (admission_turn.sql). $1 queue. Idempotent.
insert into tenure.admission_turn as t (queue_id) values ($1) on conflict (queue_id) do nothing;

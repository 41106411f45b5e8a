-- Removes the schedules; jobs that they made stay.
drop function tenure.slot_text(timestamptz);
drop table tenure.schedule_run, tenure.schedule;

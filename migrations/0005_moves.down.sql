-- Removes the moves; jobs that they made stay, without the links from the old ones.
drop function tenure.job_text(int, int, bigint);
drop table tenure.forward, tenure.dead_letter_due, tenure.move;
alter table tenure.queue drop column dead_letter_queue, drop column dead_letter_rate;

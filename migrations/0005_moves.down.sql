-- Removes the moves; jobs that they made stay, without the links from the old ones.
drop function tenure.job_text(int, int, bigint);
drop table tenure.forward, tenure.move;

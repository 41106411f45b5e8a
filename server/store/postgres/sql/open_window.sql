-- From here on the target takes what is visible now. $1 target, whose row lock_target_state.sql has locked. The rows are read by later statements, which
-- see at least as much.
update tenure.target_state as s set until = pg_current_snapshot(), at_xid = '0', at_id = 0 where s.target_id = $1 returning s.until::text as until;

-- Counts the ends of jobs for those that wait for them: $1 jobs that have ended (sorted), $2 the state in which each did (0: its record is gone), $3 those
-- that wait, whose rows the caller has locked. Primary key of tenure.dependency.
with input as materialized (
  select i.* from unnest($1::bigint[], $2::int[]) as i (id, outcome)
)
update tenure.dependency as d
set outcome = (select i.outcome from input i where i.id = d.awaited_id)
where d.awaited_id = any ($1::bigint[]) and d.job_id = any ($3::bigint[]) and d.outcome is null;

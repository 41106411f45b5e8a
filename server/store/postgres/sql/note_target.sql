-- How a target fares. $1, $2 leader, $3 target, $4 error (empty: all is well), $5 when it runs next (NULL: as it was), and $6 the version
-- that the target was served in: a change by its owner sets that time, too, and counts. Locks the target's row FOR SHARE then, and its state.
with in_term as materialized (
  select true as yes from tenure.leader l where l.worker = $1 and l.term = $2 for share
),
same as materialized (
  select true as yes from tenure.target t where $5::timestamptz is not null and t.id = $3 and t.version = $6 for share
),
noted as (
  update tenure.target_state as s
  set last_success_at = case when $4 = '' then now() else s.last_success_at end, last_error_at = case when $4 <> '' then now() else s.last_error_at end,
      last_error = $4, next_at = case when exists (select 1 from same) then $5 else s.next_at end
  where s.target_id = $3 and exists (select 1 from in_term)
)
select exists (select 1 from in_term) as in_term;

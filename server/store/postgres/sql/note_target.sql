-- How a target fares. $1, $2 leader, $3 target, $4 error (empty: all is well), $5 when it runs next, in microseconds from now (NULL: as it was).
with in_term as materialized (
  select true as yes from tenure.leader l where l.worker = $1 and l.term = $2 for share
),
noted as (
  update tenure.target_state as s
  set last_success_at = case when $4 = '' then now() else s.last_success_at end, last_error_at = case when $4 <> '' then now() else s.last_error_at end,
      last_error = $4, next_at = coalesce(now() + $5::bigint * interval '1 microsecond', s.next_at)
  where s.target_id = $3 and exists (select 1 from in_term)
)
select exists (select 1 from in_term) as in_term;

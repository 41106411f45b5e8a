-- How further attempts ended. $1, $2 leader, $3 target, $4 ids (sorted, distinct), $5 accepted, $6 errors, $7 when again, in microseconds, $8 never again.
with in_term as materialized (
  select true as yes from tenure.leader l where l.worker = $1 and l.term = $2 for share
),
result as materialized (
  select i.* from unnest($4::bigint[], $5::boolean[], $6::text[], $7::bigint[], $8::boolean[]) as i (id, accepted, error, retry_us, dead)
  where exists (select 1 from in_term)
),
sent as (
  delete from tenure.delivery d where d.target_id = $3 and d.id = any (array(select r.id from result r where r.accepted)) returning 1
),
failed as (
  update tenure.delivery as d
  set attempts = d.attempts + 1, last_failed_at = now(),
      due_at = now() + (select r.retry_us from result r where r.id = d.id) * interval '1 microsecond',
      last_error = (select r.error from result r where r.id = d.id), dead = (select r.dead from result r where r.id = d.id)
  where d.target_id = $3 and d.id = any (array(select r.id from result r where not r.accepted))
),
noted as (
  update tenure.target_state as s
  set last_success_at = case when exists (select 1 from result r where r.accepted) then now() else s.last_success_at end,
      last_error_at = case when exists (select 1 from result r where not r.accepted) then now() else s.last_error_at end,
      last_error = coalesce((select r.error from result r where not r.accepted limit 1), '')
  where s.target_id = $3 and exists (select 1 from result)
)
select exists (select 1 from in_term) as in_term;

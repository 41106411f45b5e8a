-- A target has taken a day. $1, $2 leader, $3 target, $4 table, $5 rows.
with in_term as materialized (
  select true as yes from tenure.leader l where l.worker = $1 and l.term = $2 for share
),
noted as (
  insert into tenure.target_export as e (target_id, partition, row_count)
  select t.id, $4, $5 from tenure.target t where t.id = $3 and exists (select 1 from in_term)
  on conflict (target_id, partition) do update set row_count = excluded.row_count, exported_at = now()
)
select exists (select 1 from in_term) as in_term;

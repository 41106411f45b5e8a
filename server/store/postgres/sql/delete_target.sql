-- A target goes, with its place and what it knows of exports. delete_deliveries.sql comes before. $1 name. No row: there is none.
with gone as (
  delete from tenure.target t where t.name = $1 returning t.id
),
state as (
  delete from tenure.target_state s where s.target_id = any (array(select g.id from gone g))
),
exports as (
  delete from tenure.target_export e where e.target_id = any (array(select g.id from gone g))
)
select g.id from gone g;

-- A schedule and its runs go; the jobs that they made stay. $1 name. No row: there is none. A run that is written meanwhile is left
-- behind, and pruned by its age.
with gone as (
  delete from tenure.schedule s where s.name = $1 returning s.id
),
runs as (
  delete from tenure.schedule_run r where r.schedule_id = any (array(select g.id from gone g))
)
select g.id from gone g;

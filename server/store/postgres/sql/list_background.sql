-- The background workers that ever ran, and who leads them now.
select l.worker, case when l.expires_at > now() then l.holder else '' end as holder, l.term,
       case when l.expires_at > now() then l.since end as since, l.last_success_at, l.last_error, l.runs, l.restarts
from tenure.leader l order by l.worker;

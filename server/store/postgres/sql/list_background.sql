-- The background workers that ever ran with one leader, and who leads them now. Left out: what an older daemon led so, and is divided by shard now.
select l.worker, case when l.expires_at > now() then l.holder else '' end as holder, l.term,
       case when l.expires_at > now() then l.since end as since, l.last_success_at, l.last_error, l.runs, l.restarts
from tenure.leader l where not exists (select 1 from tenure.shard_lease s where s.worker = l.worker) order by l.worker;

-- The replicas that live, and what they lead: one whose own lease has run out is gone.
select r.*, r.lease_until > now() as alive,
       array(select l.worker from tenure.leader l where l.replica_id = r.id and l.expires_at > now()
             union select s.worker from tenure.shard_lease s where s.replica_id = r.id and s.expires_at > now() order by worker) as leads
from tenure.replica r where r.lease_until > now() order by r.id;

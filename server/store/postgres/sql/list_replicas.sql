-- The replicas that live, and what they lead: one whose own lease has run out is gone.
select r.*, r.lease_until > now() as alive,
       array(select l.worker from tenure.leader l where l.replica_id = r.id and l.expires_at > now() order by l.worker) as leads
from tenure.replica r where r.lease_until > now() order by r.id;

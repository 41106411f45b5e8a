-- The replicas of the last hour and what they lead.
select r.*, r.lease_until > now() as alive,
       array(select l.worker from tenure.leader l where l.replica_id = r.id and l.expires_at > now() order by l.worker) as leads
from tenure.replica r where r.heartbeat_at > now() - interval '1 hour' order by r.id;

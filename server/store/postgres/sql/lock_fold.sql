-- One folder at a time, and only the leader. $1 worker, $2 term. Answers the snapshot that is folded, and the one for rotation.
select f.folded::text as folded, f.rotated::text as rotated, now() - f.rotated_at > interval '10 minutes' as rotate
from tenure.event_fold f, tenure.leader l
where l.worker = $1 and l.term = $2
for update of f for share of l;

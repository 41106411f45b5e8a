-- The content of an ended job, for a new job made after it. $1 id, $2 the earliest day on which it can have ended.
select h.* from tenure.history h where h.id = $1 and h.ended_on >= $2::date
union all
select h.* from tenure.dead_letter h where h.id = $1 and h.ended_on >= $2::date
limit 1;

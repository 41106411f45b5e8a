-- Ends a step of a move: its counts, and when the next step is of use. $1 the move, locked by move_begin.sql; $2 most jobs that the step might move; $3 jobs moved, $4 passed
-- over since their payload is gone, $5 held back for a later pass; $6 how far it has read, $7 whether that was the end of a pass; $8 the jobs that it made which are still
-- live, and those that it made now. The pass that moves nothing and holds nothing back is the last. Answers the seconds to wait, whether the move has ended, and whether it is a
-- standing one. Primary key of tenure.move.
with step as materialized (
  select m.*, $7::boolean and m.moved_in_pass = 0 as idle_pass, $7::boolean and m.moved_in_pass = 0 and m.held_in_pass = 0 and not m.standing as last_pass
  from tenure.move m where m.id = $1
),
counted as (
  update tenure.move as m
  set moved = m.moved + $3,
      failed = case when $7 and not v.last_pass and not v.standing then 0 else m.failed + $4 end,
      last_error = case when $3::bigint > 0 then '' when $4::bigint > 0 then 'the payload of a job is gone: was a partition dropped by hand?' else m.last_error end,
      cursor_id = case when $7 then 0 else $6::bigint end,
      moved_in_pass = case when $7 then 0 else m.moved_in_pass + $3 end,
      held_in_pass = case when $7 then 0 else m.held_in_pass + $5 end,
      used_until = case when m.rate is null then now() else greatest(m.used_until, now() - interval '1 second') + $3::bigint * interval '1 second' / m.rate end,
      in_flight = case when m.max_in_flight is null then '{}' else $8::bigint[] end,
      state = case when v.last_pass then 3 else m.state end,
      ended_at = case when v.last_pass then now() end,
      updated_at = now()
  from step v
  where m.id = $1
  returning m.state, m.used_until, m.rate, m.standing, v.idle_pass
)
-- Until the rate allows a tenth of a second's jobs, at least one; a tenth of a second where nothing is allowed; some seconds where all there is has to wait
-- for something; else at once.
select greatest(case when c.rate is not null
                     then extract(epoch from c.used_until + greatest(1, c.rate / 10.0) / c.rate * interval '1 second' - now()) else 0 end,
                case when $2::bigint = 0 or (c.standing and $3::bigint = 0) then 0.1 when c.idle_pass then 5 else 0 end)::float8 as seconds,
       c.state <> 1 as ended, c.standing
from counted c;

-- Pauses, resumes or cancels a move that has not ended and is no standing one. $1 id, $2 state. Waits for a step in progress, which holds the row. What the rate
-- allowed while it was paused is not made up for. Answers the move's id if it is in that state now.
update tenure.move as m
set state = $2, updated_at = case when m.state = $2 then m.updated_at else now() end,
    used_until = case when m.state <> 1 and $2 = 1 then now() else m.used_until end,
    ended_at = case when $2 = 4 and m.state <> 4 then now() else m.ended_at end
where m.id = $1 and not m.standing and (m.state in (1, 2) or m.state = $2)
returning m.id;

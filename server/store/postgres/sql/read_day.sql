-- Ended jobs of a day by id, by primary key. $1 ids after this, $2 limit. The caller puts the day's own table in the place of tenure.history: it may have been taken out of
-- its parent already.
select h.* from tenure.history h where h.id > $1 order by h.id limit $2;

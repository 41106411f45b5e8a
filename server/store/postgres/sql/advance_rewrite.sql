-- $1 name, $2 cursor, $3 rows read, $4 rows rewritten, $5 done. begin_rewrite.sql holds the row.
update tenure.rewrite as r
set cursor_id = $2, rows_read = r.rows_read + $3, rows_rewritten = r.rows_rewritten + $4, done = $5, last_error = '', updated_at = now(),
    ended_at = case when $5 then now() end
where r.name = $1;

-- Where a rewrite goes on; locks its row until the transaction ends. $1 name.
insert into tenure.rewrite as r (name) values ($1) on conflict (name) do update set updated_at = now() returning r.cursor_id, r.done;

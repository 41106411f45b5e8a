-- $1, $2 name and term of the leader; $3 rewrite, $4 why its step failed.
insert into tenure.rewrite as r (name, last_error)
select $3, $4 where exists (select 1 from tenure.leader l where l.worker = $1 and l.term = $2 for share)
on conflict (name) do update set last_error = excluded.last_error, updated_at = now();

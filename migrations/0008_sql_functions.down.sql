-- Removes the functions; jobs are untouched.
drop function tenure.complete(text, bytea, text);
drop function tenure.enqueue(text, text, text, text, int, timestamptz, interval, jsonb, int, timestamptz, text, interval, text, text[], text, text, boolean, interval,
  text);
drop function tenure.enqueue_bytes(text, text, bytea, text, int, timestamptz, interval, jsonb, int, timestamptz, text, interval, text, text[], text, text, boolean, interval,
  text);
drop function tenure.change_job(int, bigint, boolean, bytea, text, jsonb, boolean, timestamptz, timestamptz);

-- How far rewrites of rows in an old form have come. Makes a new table and takes no lock on anything that exists.

create table tenure.rewrite (
  name text collate "C" primary key,
  -- Rows up to this key are in the new form.
  cursor_id bigint not null default 0,
  rows_read bigint not null default 0,
  rows_rewritten bigint not null default 0,
  done boolean not null default false,
  last_error text not null default '',
  started_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  ended_at timestamptz
);

-- Makes the partitions of days, from today on. $1 days ahead.
select tenure.ensure_day(tenure.today() + n) from generate_series(0, $1) n;

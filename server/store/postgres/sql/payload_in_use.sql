-- Whether a live or ended job still has its payload in the partition of a day. $1 day.
select exists (select 1 from tenure.job j where j.payload_day = $1)
    or exists (select 1 from tenure.history h where h.payload_day = $1)
    or exists (select 1 from tenure.dead_letter h where h.payload_day = $1) as in_use;

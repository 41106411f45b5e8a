-- Jobs that are blocked become ready, whatever their limits were; keys, groups, limits, unique keys and what jobs waited for are forgotten.
update tenure.job set state = 3 where state = 2;
drop sequence tenure.admission_rank;
drop table tenure.admission_recall, tenure.fair_clock, tenure.fair_share, tenure.admission_turn, tenure.admission_pace, tenure.admission_limit;
alter table tenure.event drop column admit;
alter table tenure.history drop column concurrency_keys, drop column group_key, drop column unique_name;
alter table tenure.dead_letter drop column concurrency_keys, drop column group_key, drop column unique_name;
alter table tenure.job drop column concurrency_keys, drop column group_key, drop column gate, drop column unique_name, drop column awaited;
drop function tenure.first_gate(text, text[], boolean);
drop index tenure.queue_gated;
alter table tenure.queue drop column gated, drop column fair_tenants, drop column priority_ageing_us, drop column skip_retrying;
drop table tenure.unique_key, tenure.dependency;
drop function tenure.unique_name(text, boolean, text);
alter table tenure.idempotency drop column existing;

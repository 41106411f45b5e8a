-- Removes Tenure's schema and every job in it. tenure.schema_migration belongs to the migrator and stays.
drop function tenure.ensure_day(int);
drop function tenure.reply_size(tenure.job);
drop function tenure.backoff_us(bigint, double precision, bigint, int, bigint);
drop table tenure.outage, tenure.worker, tenure.leader, tenure.replica, tenure.event_fold, tenure.queue_count, tenure.event,
  tenure.lease_grant, tenure.idempotency, tenure.payload, tenure.dead_letter, tenure.history, tenure.job,
  tenure.queue;
drop function tenure.today();
drop function tenure.event_slot();
drop sequence tenure.event_id, tenure.job_id;

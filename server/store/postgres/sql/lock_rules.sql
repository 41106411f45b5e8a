-- One at a time decides where dead letters go, so that two rules that are set at once do not lead to each other. Released with the transaction.
select pg_advisory_xact_lock(2122, 0);

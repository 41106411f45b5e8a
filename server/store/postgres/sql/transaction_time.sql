-- The time that now() means in this transaction.
select now() as now;

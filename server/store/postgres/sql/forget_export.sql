-- A day is gone, or has to be taken again. $1 table.
delete from tenure.target_export e where e.partition = $1;

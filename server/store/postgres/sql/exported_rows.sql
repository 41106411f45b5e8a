-- How many rows of a day each export target took. $1 table.
select e.row_count from tenure.target_export e join tenure.target t on t.id = e.target_id where e.partition = $1 and t.purpose = 3;

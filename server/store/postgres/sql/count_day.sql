-- How many jobs a day has: all of them are counted. The caller puts the day's own table in the place of tenure.history.
select count(*) as jobs from tenure.history h;

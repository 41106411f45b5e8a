-- Forgets how far rewrites have come. What was rewritten stays.
drop table tenure.rewrite;

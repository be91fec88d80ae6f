-- The unfinished jobs that hold these unique keys.
select j.unique_key, j.id from stargate.job j where j.unique_key = any ($1::text[])

-- One step of the search for the first id since an instant: ids and creation times rise together.
select id, created_at from (
    select * from (select id, created_at from job where id >= ?1 order by id limit 1)
    union all
    select * from (select id, created_at from job_history where id >= ?1 order by id limit 1)
) order by id limit 1

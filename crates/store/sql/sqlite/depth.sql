select min(?1, (select coalesce(sum(ready), 0) from lane)
             + (select count(*) from (select 1 from job where stage = 1 and run_at <= ?2 limit ?1)))

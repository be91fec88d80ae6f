-- Makes delayed jobs ready whose time has come, the earliest first; how many, and since when the first was due.
with promoted as (
    update stargate.job j set stage = 0
     where j.ctid = any (array(
            select d.ctid from stargate.job d
             where d.stage = 1 and d.run_at <= coalesce($1::timestamptz, now())
             order by d.run_at limit 1000
               for update skip locked))
    returning j.run_at
)
select count(*), min(p.run_at) from promoted p

-- Jobs that could run, counted no further than asked.
select (select count(*) from (select from stargate.job j where j.stage = 0 limit $2::bigint) r)
     + (select count(*) from (select from stargate.job j
                               where j.stage = 1 and j.run_at <= coalesce($1::timestamptz, now()) limit $2::bigint) d)

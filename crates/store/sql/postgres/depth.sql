-- Jobs that could run, counted no further than asked. What lies below a floor is not looked at, as in job_claim.sql.
--
-- $1 now, $2 how far, $3 above lanes, $4 below lanes, $5 lanes of the parts, $6 their highest priorities, $7 their lowest,
-- $8 since when, $9 delayed jobs since when
select (select count(*) from (
            select from unnest($3::integer[], $4::integer[]) g (above, below)
             cross join lateral (select from stargate.job j
                                  where j.stage = 0 and j.lane_id > g.above and j.lane_id < g.below limit $2::bigint) r
             limit $2::bigint) r)
     + (select count(*) from (
            select from unnest($5::integer[], $6::smallint[], $7::smallint[], $8::timestamptz[]) p (lane_id, most, least, since)
             cross join lateral (
                select from (
                    select from stargate.job j
                     where p.since is null
                       and j.stage = 0 and j.lane_id = p.lane_id and j.priority between p.least and p.most
                     limit $2::bigint) whole
                union all
                select from (
                    select from stargate.job j
                     where p.since is not null
                       and j.stage = 0 and j.lane_id = p.lane_id and j.priority = p.most and j.run_at >= p.since
                     limit $2::bigint) rest) r
             limit $2::bigint) r)
     + (select count(*) from (
            select from stargate.job j
             where j.stage = 1 and j.run_at >= coalesce($9::timestamptz, '-infinity')
               and j.run_at <= coalesce($1::timestamptz, now())
             limit $2::bigint) d)

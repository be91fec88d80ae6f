update job set stage = 0
where id in (select id from job where stage = 1 and run_at <= ?1 order by run_at limit ?2)
returning lane_id

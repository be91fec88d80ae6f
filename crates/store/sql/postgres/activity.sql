-- What ended in a stretch of time, by second, state and wait. $1 from, $2 up to and without
select floor(date_part('epoch', h.finished_at))::bigint, h.state,
       floor(greatest(date_part('epoch', h.started_at - h.run_at), 0) * 1000 + 0.0005)::bigint, count(*)
  from stargate.job_history h where h.state in (2, 3, 4) and h.finished_at >= $1::timestamptz and h.finished_at < $2::timestamptz
 group by 1, 2, 3

-- What ended in a stretch of time, by second, state and wait. ?1 from, ?2 up to and without
select finished_at / 1000000, state, max(started_at - run_at, 0) / 1000, count(*)
from job_history where state in (2, 3, 4) and finished_at >= ?1 and finished_at < ?2
group by 1, 2, 3

-- Which of some jobs are unfinished, and whether their end was asked for. $1 ids
select j.id, j.stage = 3 and j.cancel_requested from stargate.job j where j.id = any ($1::bigint[])

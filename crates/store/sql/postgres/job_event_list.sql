-- The stored part of a timeline.
select e.seq, e.at, e.event, e.data::text from stargate.job_event e
 where e.job_id = $1::bigint and e.seq > $2::integer order by e.seq limit $3::bigint

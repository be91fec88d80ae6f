-- Removes finished jobs beyond their retention with all that belongs to them, at most so many. A job whose end has yet
-- to be written at its source stays.
-- Only on Postgres: one statement for a batch; on SQLite the program goes through the jobs (job_purge_find.sql).
--
-- One state at a time and the oldest first: the index by state and end then fits better than any other, whatever the statistics say.
-- What the batch before has removed stays in the index while a transaction is held open: $5 says where that came to, so that
-- each batch does not step over all of it again.
-- $1 now, $2 state, $3 age in milliseconds, $4 limit, $5 since when; answers how many, and when the last of them ended
with old as materialized (
    select h.id from stargate.job_history h
     where h.state = $2::smallint and h.finished_at >= coalesce($5::timestamptz, '-infinity')
       and h.finished_at <= coalesce($1::timestamptz, now()) - $3::bigint * interval '1 millisecond'
       and not exists (select from stargate.source_link l where l.job_id = h.id)
     order by h.finished_at limit $4::integer
), gone as (
    delete from stargate.job_history h where h.id = any (array(select o.id from old o)) returning h.id, h.finished_at
), events as (
    -- Of those that are gone, not of those that were old: one that somebody runs again meanwhile keeps what belongs to it.
    delete from stargate.job_event e where e.job_id = any (array(select g.id from gone g))
), parents as (
    delete from stargate.job_parent p where p.job_id = any (array(select g.id from gone g))
)
select count(*), max(g.finished_at) from gone g

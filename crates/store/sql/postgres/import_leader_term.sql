-- Only here because a store is moved from SQLite to Postgres and not back.
-- The history of leadership. A target that has had leaders keeps its own: two histories of the same time are no history.
-- $1 the rows as a JSON array
with read as (
    select r.epoch, r.instance, r.address, r.began_at, r.ended_at, r.reason
      from json_to_recordset($1::text::json) as r
           (epoch bigint, instance text, address text, began_at bigint, ended_at bigint, reason text)
), written as (
    insert into stargate.leader_term (epoch, instance, address, began_at, ended_at, reason)
    select r.epoch, r.instance, r.address, 'epoch'::timestamptz + r.began_at * interval '1 microsecond',
           'epoch'::timestamptz + r.ended_at * interval '1 microsecond', r.reason
      from read r
     where not exists (select from stargate.leader_epoch e where e.epoch > 0)
)
select count(*) from read

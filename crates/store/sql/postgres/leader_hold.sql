-- Has no term begin or end until this transaction ends; refused when the caller's is over.
-- Only on Postgres: on SQLite the writer's transaction lets nobody else write.
-- $1 the caller's epoch
select stargate.leader_hold($1::bigint)

-- Fails waiting jobs, each because of the parent beside it and the state that has, and their dependents with them.
select stargate.dependency_failed($2::bigint[], $3::bigint[], $4::smallint[], coalesce($1::timestamptz, now()))

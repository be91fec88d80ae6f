-- Fails the jobs that wait for parents that did not end well.
-- Only on Postgres: on SQLite the program goes down the tree of dependents (job_children_blocked.sql).
--
-- $1 now, $2 parents, $3 their states
select stargate.dependency_failed(
    coalesce(array_agg(p.job_id), '{}'), array_agg(p.parent_id), array_agg(f.state), coalesce($1::timestamptz, now()))
  from unnest($2::bigint[], $3::smallint[]) f (id, state)
  join stargate.job_parent p on p.parent_id = f.id
  join stargate.job c on c.id = p.job_id and c.stage = 2

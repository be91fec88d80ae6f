-- Only on SQLite: the program goes down the tree of dependents; Postgres does it in job_children_fail.sql.
select j.id, j.lane_id, j.has_children from job_parent p join job j on j.id = p.job_id
where p.parent_id = ?1 and j.stage = 2

-- Only on SQLite: on Postgres job_parent_lock.sql marks the parents it locks.
update job set has_children = 1 where id = ?1

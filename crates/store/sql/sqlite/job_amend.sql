-- Only on SQLite: link_amend.sql of Postgres does both.
update job set payload = ?2, priority = ?3, max_attempts = ?4 where id = ?1 and stage = 2

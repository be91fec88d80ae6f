-- Only on SQLite: on Postgres job_claim_keyed.sql charges the keys in the same statement.
update limit_key set running = running + ?2, tokens = ?3, refilled_at = ?4, vtime = ?5 where key = ?1

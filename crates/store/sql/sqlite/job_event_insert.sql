-- Only on SQLite: on Postgres each statement that changes a job writes the rows of its timeline itself.
insert into job_event (job_id, seq, at, event, data) values (?1, ?2, ?3, ?4, ?5)

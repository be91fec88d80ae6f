-- Only here because a store is moved from SQLite to Postgres and not back.
-- The numbers that only rise: the last job, lane and worker, the virtual time of fair sharing in millionths, the epoch, and the
-- last announcement, quarantined record and audited action.
select (select value from counter where name = 'job_id'),
       coalesce((select seq from sqlite_sequence where name = 'lane'), 0),
       coalesce((select seq from sqlite_sequence where name = 'worker'), 0),
       (select value from counter where name = 'vtime'),
       (select epoch from leader_epoch),
       coalesce((select seq from sqlite_sequence where name = 'directive_outbox'), 0),
       coalesce((select seq from sqlite_sequence where name = 'directive_quarantine'), 0),
       coalesce((select seq from sqlite_sequence where name = 'stargate_audit'), 0)

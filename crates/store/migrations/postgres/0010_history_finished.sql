-- Finished jobs by state and the time of their end, as SQLite has them.
--
-- What stood here summarised ranges of pages, and a summary only ever widens: where a purge had made room and later ends moved in, a
-- range was said to hold everything from the oldest to the newest. Each purge, and each chart of the last hour, then read all of
-- the history that had been written over.
--
-- The other way round by state, so that jobs that end well, nearly all of them, are entered at the end.
drop index stargate.job_history_finished;
create index job_history_finished on stargate.job_history (state desc, finished_at);

-- Finished jobs by state and the time of their end, as SQLite has them.
--
-- What stood here summarised ranges of pages, and a summary only ever widens: where a purge had made room and later ends moved in, a
-- range was said to hold everything from the oldest to the newest. Each purge, and each chart of the last hour, then read all of
-- the history that had been written over.
--
-- The other way round by state, so that jobs that end well, nearly all of them, are entered at the end.
--
-- Made before the old one goes: meanwhile finished jobs can be read. To take that away nobody may read them for an instant; whoever
-- does so for long is not waited for, because everybody else would wait behind us.
create index job_history_ended on stargate.job_history (state desc, finished_at);
set local lock_timeout = '5s';
drop index stargate.job_history_finished;
alter index stargate.job_history_ended rename to job_history_finished;
set local lock_timeout to default;

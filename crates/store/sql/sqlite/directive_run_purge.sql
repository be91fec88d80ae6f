-- Removes runs that ended long ago. ?1 until when, ?2 rows at most
-- They began before they ended, and there is an index on that.
delete from directive_run
 where id in (select id from directive_run where started_at < ?1 and ended_at < ?1 order by started_at, id limit ?2)

-- Runs of a directive, newest first. ?1 the run before the page or null, ?2 rows at most, ?3 directive
select id, directive, tenant_id, project_id, engine, workflow_id, outcome, pages, created, updated, unchanged, failed, cursor, beat,
       cancel_asked, error, started_at, updated_at, ended_at, source_ended
  from directive_run
 where directive = ?3
   and (started_at, id) < (case when ?1 is null then 9223372036854775807
                           else (select started_at from directive_run where id = ?1) end, coalesce(?1, ''))
 order by started_at desc, id desc limit ?2

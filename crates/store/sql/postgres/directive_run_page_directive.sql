-- Runs of a directive, newest first. $1 the run before the page or null, $2 rows at most, $3 directive
select id, directive, tenant_id, project_id, engine, workflow_id, outcome, pages, created, updated, unchanged, failed, cursor::text,
       beat::text, cancel_asked, error, started_at, updated_at, ended_at, source_ended
  from stargate.directive_run
 where directive = $3::text
   and (started_at, id) < (case when $1::text is null then timestamptz 'infinity'
                           else (select started_at from stargate.directive_run where id = $1::text) end, coalesce($1::text, ''))
 order by started_at desc, id desc limit $2::bigint

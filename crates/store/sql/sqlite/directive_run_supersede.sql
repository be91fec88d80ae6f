-- Ends runs whose lease another one takes. ?1 now, ?2 lease key, ?3 the other run, ?4 why
update directive_run set outcome = 'failed', error = ?4, ended_at = ?1, updated_at = ?1
 where lease_key = ?2 and ended_at is null and id <> ?3

-- Adds a batch to its run and keeps what is answered.
-- ?1 now, ?2 id, ?3 pages, ?4 created, ?5 updated, ?6 unchanged, ?7 failed, ?8 the cursor or null, ?9 request, ?10 lease, ?11 the
-- cursor's version, ?12 whether the source ended
update directive_run
   set pages = pages + ?3, created = created + ?4, updated = updated + ?5, unchanged = unchanged + ?6, failed = failed + ?7,
       cursor = coalesce(?8, cursor), batch_request = ?9, batch_lease = ?10, batch_created = ?4, batch_updated = ?5,
       batch_unchanged = ?6, batch_failed = ?7, batch_cursor = ?11, source_ended = source_ended or ?12, updated_at = ?1
 where id = ?2

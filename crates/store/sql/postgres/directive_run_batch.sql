-- Adds a batch to its run and keeps what is answered.
-- $1 now, $2 id, $3 pages, $4 created, $5 updated, $6 unchanged, $7 failed, $8 the cursor or null, $9 request, $10 lease,
-- $11 the cursor's version, $12 whether the source ended
update stargate.directive_run
   set pages = pages + $3::bigint, created = created + $4::bigint, updated = updated + $5::bigint,
       unchanged = unchanged + $6::bigint, failed = failed + $7::bigint, cursor = coalesce($8::text::json, cursor),
       batch_request = $9::text, batch_lease = $10::bigint, batch_created = $4::bigint, batch_updated = $5::bigint,
       batch_unchanged = $6::bigint, batch_failed = $7::bigint, batch_cursor = $11::bigint,
       source_ended = source_ended or $12::boolean, updated_at = coalesce($1::timestamptz, now())
 where id = $2::text
returning 1

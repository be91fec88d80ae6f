-- Where a ref was believed to be when an event was recorded that begins elsewhere: steps between them may be missing.
alter table stargate.push_event add column follows text check (length(follows) in (40, 64));
create index push_event_torn on stargate.push_event (repo_id, ref_name, id) where follows is not null;
-- What was recorded of holes, for hooks that are later than that.
create index push_event_fill on stargate.push_event (repo_id, ref_name, old_oid, new_oid)
 where substr(request_id, 1, 17) = 'reconcile-before-';

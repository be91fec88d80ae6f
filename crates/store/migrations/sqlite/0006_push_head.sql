-- The head of a ref: the event that tells where it is. It is kept for as long as the ref is there.
alter table push_event add column is_head integer not null default 0;
update push_event set is_head = 1 where id in (select max(id) from push_event group by repo_id, ref_name);
create index push_event_head on push_event (repo_id, ref_name) where is_head = 1;
drop index push_event_processed;
create index push_event_processed on push_event (processed_at)
 where processed_at is not null and (is_head = 0 or ltrim(new_oid, '0') = '');

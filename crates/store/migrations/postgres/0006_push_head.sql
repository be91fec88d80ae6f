-- The head of a ref: the event that tells where it is. It is kept for as long as the ref is there.
alter table stargate.push_event add column is_head boolean not null default false;
update stargate.push_event set is_head = true
 where id in (select max(id) from stargate.push_event group by repo_id, ref_name);
create index push_event_head on stargate.push_event (repo_id, ref_name) where is_head;
drop index stargate.push_event_processed;
create index push_event_processed on stargate.push_event (processed_at)
 where processed_at is not null and (not is_head or ltrim(new_oid, '0') = '');

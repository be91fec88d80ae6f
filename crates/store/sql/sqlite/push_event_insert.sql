-- Enters one ref if it is not there yet, and answers its number.
-- ?1 now, ?2 repository, ?3 request, ?4 pusher, ?5 epoch, ?6 received at, ?7 ref, ?8 old end, ?9 new end
insert into push_event (repo_id, request_id, pusher, epoch, received_at, created_at, ref_name, old_oid, new_oid)
values (?2, ?3, ?4, ?5, ?6, ?1, ?7, ?8, ?9)
on conflict (repo_id, request_id, ref_name, old_oid, new_oid) do nothing
returning id

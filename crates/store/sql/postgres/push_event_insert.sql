-- Enters what is not there yet, in the order given, and answers its numbers.
-- $1 now, $2 repository, $3 request, $4 pusher, $5 epoch, $6 received at, $7 refs, $8 old ends, $9 new ends
insert into stargate.push_event (repo_id, request_id, pusher, epoch, received_at, created_at, ref_name, old_oid, new_oid)
select $2::bigint, $3::text, $4::text, $5::bigint, $6::timestamptz, coalesce($1::timestamptz, now()), n.ref_name, n.old_oid, n.new_oid
  from unnest($7::text[], $8::text[], $9::text[]) with ordinality n (ref_name, old_oid, new_oid, place)
 order by n.place
on conflict (repo_id, request_id, ref_name, old_oid, new_oid) do nothing
returning id

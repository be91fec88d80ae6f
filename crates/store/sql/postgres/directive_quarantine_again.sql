-- Known records came again. $1 directive, $2 tenant, $3 project, $4 hashes, $5 causes, $6 reasons, $7 entities, $8 times
update stargate.directive_quarantine q
   set seen = q.seen + n.times, cause = n.cause, reason = n.reason, entity_id = n.entity_id, resolved_at = null
  from unnest($4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[]) n (hash, cause, reason, entity_id, times)
 cross join lateral (select id from stargate.directive_quarantine
                      where directive = $1::text and tenant_id = $2::text and project_id = $3::text
                        and record_hash = n.hash offset 0) k
 where q.id = k.id
returning 1

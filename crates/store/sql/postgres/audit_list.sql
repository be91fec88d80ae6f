-- A page of actions, newest first. $1 before, $2 actor, $3 action, $4 with what the action begins, $5 target, $6 limit
select a.id, a.at, a.actor, a.token_id, a.role, a.action, a.target, a.detail::text, a.request_id, a.source, a.finished_at,
       a.outcome
  from stargate.stargate_audit a
 where a.id < $1::bigint and ($2::text is null or a.actor = $2::text) and ($3::text is null or a.action = $3::text)
   and ($4::text is null or starts_with(a.action, $4::text)) and ($5::text is null or a.target = $5::text)
 order by a.id desc limit $6::bigint

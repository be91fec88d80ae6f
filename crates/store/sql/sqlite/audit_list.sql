-- A page of actions, newest first. ?1 before, ?2 actor, ?3 action, ?4 with what the action begins, ?5 target, ?6 limit
select id, at, actor, token_id, role, action, target, detail, request_id, source, finished_at, outcome
from stargate_audit
where id < ?1 and (?2 is null or actor = ?2) and (?3 is null or action = ?3)
  and (?4 is null or substr(action, 1, length(?4)) = ?4) and (?5 is null or target = ?5)
order by id desc limit ?6

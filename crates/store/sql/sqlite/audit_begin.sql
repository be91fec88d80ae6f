-- Enters an action. ?1 now
insert into stargate_audit (at, actor, token_id, role, action, target, detail, request_id, source)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
returning id

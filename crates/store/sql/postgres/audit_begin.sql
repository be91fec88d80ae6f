-- Enters an action. $1 now
insert into stargate.stargate_audit (at, actor, token_id, role, action, target, detail, request_id, source)
values (coalesce($1::timestamptz, now()), $2::text, $3::text, $4::text, $5::text, $6::text, $7::text::json, $8::text, $9::text)
returning id

-- Asks a run to stop. $1 id
update stargate.directive_run set cancel_asked = true where id = $1::text and ended_at is null
returning 1

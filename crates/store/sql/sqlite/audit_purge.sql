-- Removes old actions. ?1 begun at or before, ?2 at most
delete from stargate_audit where id in (select id from stargate_audit where at <= ?1 order by at limit ?2)

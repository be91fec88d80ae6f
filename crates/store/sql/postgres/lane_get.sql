-- Lanes by number.
select l.id, l.queue, l.kind, l.limit_key from stargate.lane l where l.id = any ($1::integer[])

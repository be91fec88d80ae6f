-- Removes the limits of a pattern.
delete from stargate.limit_rule where pattern = $1::text returning true

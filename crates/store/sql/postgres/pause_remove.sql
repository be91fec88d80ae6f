-- Gives out jobs of a queue or kind again.
delete from stargate.pause where scope = $1::text and name = $2::text returning true

-- A remark of the store about itself.
select m.value from stargate.meta m where m.key = $1::text

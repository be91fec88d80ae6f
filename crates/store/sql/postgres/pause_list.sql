-- What is paused.
select p.scope, p.name from stargate.pause p order by p.scope desc, p.name

-- Removes a repository; its events and hooks go with it.
delete from stargate.repo where name = $1::text returning id

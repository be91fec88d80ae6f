-- Stops giving out jobs of a queue or kind.
insert into stargate.pause (scope, name) values ($1::text, $2::text) on conflict do nothing

-- Only here because SQLite cannot notify: an announcement that is not delivered, for nobody else meanwhile. $1 number
select payload::text from stargate.directive_outbox where id = $1::bigint and delivered_at is null for update

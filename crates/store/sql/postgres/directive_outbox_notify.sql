-- Only here because SQLite cannot notify. $1 channel, $2 what is said
select pg_notify($1::text, $2::text)::text

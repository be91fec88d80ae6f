-- Only here because a store is moved from SQLite to Postgres and not back: only here a frozen store thaws.
delete from meta where key = ?1

-- Only on SQLite: the program finds the rule of each key; Postgres does it in limit_key_refresh.sql.
select key from limit_key where key <> ''

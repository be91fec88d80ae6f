-- Only on Postgres: on SQLite the program halves its way to the first id of a time, whichever side of it is asked for.
-- An id from which on no job was created before an instant.
select stargate.created_until($1::timestamptz)

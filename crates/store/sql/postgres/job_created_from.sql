-- An id below which no job was created at or after an instant.
select stargate.created_from($1::timestamptz)

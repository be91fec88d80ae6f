-- Only here because on Postgres the server's settings are part of diagnose.sql; here only the writing connection knows.
select synchronous from pragma_synchronous

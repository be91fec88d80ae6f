-- Lets this transaction stand still for longer than begin.sql allows, while another database works: where a store is moved, and where
-- another queue gives jobs.
-- Only on Postgres: nobody ends a transaction of SQLite but its own program.
select set_config('idle_in_transaction_session_timeout', $1::text, true)

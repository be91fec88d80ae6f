-- Differs from Postgres, where a function does all that begins a term.
-- When a term may begin: now, but not before the last one began or ended. ?1 now
select max(?1, coalesce(began_at, ?1), coalesce(ended_at, ?1)) from (select max(began_at) as began_at, max(ended_at) as ended_at from leader_term)

-- Differs from Postgres, where a function does all that begins a term.
delete from leader_term where epoch <= ?1

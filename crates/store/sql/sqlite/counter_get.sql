-- Differs from Postgres, which has sequences.
select value from counter where name = ?1

-- Differs from Postgres, which has sequences.
update counter set value = ?2 where name = ?1 and value < ?2

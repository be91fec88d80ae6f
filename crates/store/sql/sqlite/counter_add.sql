-- Differs from Postgres, which has sequences.
update counter set value = value + ?2 where name = ?1 returning value

-- Writes by hand, newest first. ?1 and ?2 between which keys, ?3 rows at most
select key, writer, spec_ref, before, after, version, at
  from kv_override where key >= ?1 and key < ?2 order by id desc limit ?3

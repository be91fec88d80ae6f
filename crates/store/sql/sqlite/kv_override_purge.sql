-- Removes old writes by hand. ?1 until when, ?2 rows at most
-- Numbers rise with the time: only the first ones are looked at.
delete from kv_override where id in (select id from kv_override order by id limit ?2) and at < ?1

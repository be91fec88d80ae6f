-- Announces a change. ?1 now, ?2 topic, ?3 key, ?4 payload
insert into directive_outbox (topic, key, payload, created_at) values (?2, ?3, ?4, ?1)

-- ?1 now, ?2 delivery
update webhook_outbox set delivered_at = ?1 where id = ?2 and delivered_at is null returning id

-- Moves a schedule on if it still waits for this instant and the instant has come: only one process succeeds.
update stargate.schedule s set last_at = s.next_at, next_at = $4::timestamptz
 where s.name = $2::text and s.next_at = $3::timestamptz and s.next_at <= coalesce($1::timestamptz, now())
returning s.kind, s.queue, s.payload::text, s.priority

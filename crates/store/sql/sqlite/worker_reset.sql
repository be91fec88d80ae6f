-- The clock was set back by more than a lease: who has beaten in what is the future now, and is dead, would keep its jobs until then.
-- Its leases begin anew. Whoever lives does not notice.
update worker set beat_at = ?1 where gone_at is null and beat_at > ?1 + lease_min_ms * 1000

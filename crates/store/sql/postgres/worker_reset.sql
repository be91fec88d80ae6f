-- The clock was set back by more than a lease: who has beaten in what is the future now, and is dead, would keep its jobs until then.
-- Its leases begin anew. Whoever lives does not notice. One that somebody else works with is left to the next look.
-- By the clock of this very moment: the process whose transaction this is may have stood still since it began, and others have beaten.
update stargate.worker w set beat_at = t.now
  from (select coalesce($1::timestamptz, clock_timestamp()) as now) t
 where w.id in (select a.id from stargate.worker a
                 where a.gone_at is null and a.beat_at > t.now + a.lease_min_ms * interval '1 millisecond'
                   for update skip locked)

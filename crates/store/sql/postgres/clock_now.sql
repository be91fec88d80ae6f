-- The store's time.
select coalesce($1::timestamptz, clock_timestamp())

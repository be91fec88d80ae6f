-- Begins a term; null if another has begun since. One statement, so that a client that stands still holds nobody up.
-- $1 now, $2 instance, $3 address, $4 the epoch that the caller saw, $5 terms to keep
select stargate.term_begin($1::timestamptz, $2::text, $3::text, $4::bigint, $5::bigint)

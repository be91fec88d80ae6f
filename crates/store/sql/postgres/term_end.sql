-- Records the end of a term, once. One statement, so that a client that stands still holds nobody up. $1 now, $2 epoch, $3 reason
select stargate.term_end($1::timestamptz, $2::bigint, $3::text)

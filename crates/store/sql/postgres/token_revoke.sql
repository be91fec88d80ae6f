-- Takes a token back; the answer tells whether it was there, and whether it was not revoked before. $1 now, $2 id
with revoked as (
    update stargate.token set revoked_at = coalesce($1::timestamptz, now()) where id = $2::text and revoked_at is null returning
           id
)
select exists (select from stargate.token where id = $2::text), exists (select from revoked)

-- A token and the store's time from the same look; a row of nulls where there is none. $1 now, $2 id
select t.id, t.hash, t.name, t.grants::text, t.created_at, t.expires_at, t.last_used_at, t.revoked_at, c.now
  from (select coalesce($1::timestamptz, now()) as now) c left join stargate.token t on t.id = $2::text

-- Only on SQLite: Postgres joins the lanes.
-- The lanes that a filter lets through. ?1 queue, ?2 kind, ?3 limit key
select id from lane
where (?1 is null or queue = ?1) and (?2 is null or kind = ?2) and (?3 is null or limit_key = ?3)
order by id

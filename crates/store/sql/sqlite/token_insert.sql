-- Keeps a token; no row when the id is taken. ?1 now, ?2 id, ?3 hash, ?4 name, ?5 grants, ?6 life in microseconds
insert into token (id, hash, name, grants, created_at, expires_at) values (?2, ?3, ?4, ?5, ?1, ?1 + ?6)
on conflict (id) do nothing
returning id

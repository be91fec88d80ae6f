-- Keeps a remark of the store about itself.
insert into stargate.meta (key, value) values ($1::text, $2::text)
on conflict (key) do update set value = excluded.value

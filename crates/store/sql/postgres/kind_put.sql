-- Makes kinds known, or gives known ones new values. An unchanged kind is not written.
insert into stargate.kind as k (name, max_attempts, max_crashes)
select n.name, n.max_attempts, n.max_crashes
  from unnest($1::text[], $2::smallint[], $3::smallint[]) n (name, max_attempts, max_crashes)
 order by n.name
on conflict (name) do update set max_attempts = excluded.max_attempts, max_crashes = excluded.max_crashes
 where (k.max_attempts, k.max_crashes) <> (excluded.max_attempts, excluded.max_crashes)

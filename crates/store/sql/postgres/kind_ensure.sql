-- Makes kinds known that are not; known ones keep their values.
insert into stargate.kind (name, max_attempts, max_crashes)
select n.name, n.max_attempts, n.max_crashes
  from unnest($1::text[], $2::smallint[], $3::smallint[]) n (name, max_attempts, max_crashes)
 order by n.name
on conflict (name) do nothing

-- Makes kinds known that are not; known ones keep their values.
insert into kind (name, max_attempts, max_crashes) values (?1, ?2, ?3) on conflict (name) do nothing

insert into kind (name, max_attempts, max_crashes) values (?1, ?2, ?3)
on conflict (name) do update set max_attempts = excluded.max_attempts, max_crashes = excluded.max_crashes

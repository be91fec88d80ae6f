-- Differs from Postgres, where a shared count would serialise the writers that SQLite serialises anyway.
update lane
set ready = ready + ?2, delayed = delayed + ?3, blocked = blocked + ?4, processing = processing + ?5, failed = failed + ?6
where id = ?1

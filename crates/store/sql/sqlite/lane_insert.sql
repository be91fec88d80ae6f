insert into lane (queue, kind, limit_key) values (?1, ?2, ?3) returning id

select id from job where unique_key = ?1

insert into source_link (source, item, job_id, mark, terms) values (?1, ?2, ?3, ?4, ?5)

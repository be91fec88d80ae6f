update source_link set stage = 1 where source = ?1 and item = ?2 and mark = ?3 and stage = 0 returning job_id

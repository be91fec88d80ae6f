-- The item was accepted before and never acknowledged: the link takes on what it says now, the job by job_amend.sql.
update source_link set mark = ?3, terms = ?4 where source = ?1 and item = ?2 and stage = 0

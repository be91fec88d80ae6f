select l.item, l.job_id, l.mark, l.terms, l.stage, null
from source_link l
where l.source = ?1 and l.item > ?2 and not exists (select 1 from job j where j.id = l.job_id)
order by l.item limit ?3

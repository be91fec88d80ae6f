select l.item, l.job_id, l.mark, l.terms, l.stage, j.stage
from source_link l left join job j on j.id = l.job_id
where l.source = ?1 and l.item > ?2
order by l.item limit ?3

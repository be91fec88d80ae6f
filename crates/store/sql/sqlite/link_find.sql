select l.job_id, l.stage, exists (select 1 from job j where j.id = l.job_id)
from source_link l where l.source = ?1 and l.item = ?2

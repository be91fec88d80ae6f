select p.parent_id,
       coalesce((select case stage when 3 then 1 else 0 end from job where id = p.parent_id),
                (select state from job_history where id = p.parent_id))
from job_parent p where p.job_id = ?1 order by p.parent_id

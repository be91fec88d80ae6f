-- Which of some jobs a search is about, and how large their payloads are. Letters A to Z are compared without case, as
-- both stores can. ?1 ids as a JSON array, ?2 code, ?3 the text in lower case
select j.id, coalesce(json_extract(j.error, '$.code') = ?2, ?2 is null)
       and (?3 is null or instr(lower(j.payload), ?3) > 0 or coalesce(instr(lower(j.unique_key), ?3), 0) > 0
            or coalesce(instr(lower(json_extract(j.error, '$.message')), ?3), 0) > 0),
       octet_length(j.payload)
from json_each(?1) i join job j on j.id = i.value
union all
select j.id, coalesce(json_extract(j.error, '$.code') = ?2, ?2 is null)
       and (?3 is null or instr(lower(j.payload), ?3) > 0 or coalesce(instr(lower(j.unique_key), ?3), 0) > 0
            or coalesce(instr(lower(json_extract(j.error, '$.message')), ?3), 0) > 0),
       octet_length(j.payload)
from json_each(?1) i join job_history j on j.id = i.value

-- The item was accepted before and never acknowledged: link and job take on what it says now.
-- $1 source, $2 item, $3 mark, $4 terms, $5 payload, $6 priority, $7 max_attempts
with link as (
    update stargate.source_link l set mark = $3::text, terms = $4::text::json
     where l.source = $1::text and l.item = $2::text and l.stage = 0
    returning l.job_id
)
update stargate.job j set payload = $5::text::json, priority = $6::smallint, max_attempts = $7::smallint
  from link where j.id = link.job_id and j.stage = 2

-- A page ends with all rows of its last watermark, so that the next one begins after it.
select row_to_json(stargate_row)::text, stargate_row.{watermark}::text
from (
{query}
) as stargate_row
where {after}
  and stargate_row.{watermark} <= $2::text::{kind}
order by stargate_row.{watermark}
fetch first {size} rows with ties

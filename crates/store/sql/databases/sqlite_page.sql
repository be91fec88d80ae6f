-- The watermark stands first, and again among all columns.
select stargate_row.{watermark}, stargate_row.*
from (
{query}
) as stargate_row
where {after}
  and stargate_row.{watermark} <= ?2
order by stargate_row.{watermark}

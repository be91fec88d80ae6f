-- The watermark of the last row of a page. SQLite has no FETCH … WITH TIES, and only it knows which values are equal
-- under the column's collation.
select stargate_row.{watermark}
from (
{query}
) as stargate_row
where {after}
  and stargate_row.{watermark} <= ?2
order by stargate_row.{watermark}
limit 1 offset {size} - 1

-- Rows that no page would ever show. Whether there is one is asked before they are counted: an index knows that.
select count(*)
from (
{query}
) as stargate_row
where stargate_row.{watermark} is null

-- How far this feed reads: the highest watermark there is now.
select stargate_row.{watermark}
from (
{query}
) as stargate_row
where stargate_row.{watermark} is not null
order by stargate_row.{watermark} desc
limit 1

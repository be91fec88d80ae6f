-- How far this feed reads: the highest watermark there is now, and its type.
select stargate_row.{watermark}::text, pg_typeof(stargate_row.{watermark})::text
from (
{query}
) as stargate_row
where stargate_row.{watermark} is not null
order by stargate_row.{watermark} desc
limit 1

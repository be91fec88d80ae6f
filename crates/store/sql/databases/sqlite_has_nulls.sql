select exists (
    select 1
    from (
{query}
) as stargate_row
    where stargate_row.{watermark} is null
)

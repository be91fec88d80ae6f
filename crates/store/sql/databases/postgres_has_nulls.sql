select exists (
    select
    from (
{query}
) as stargate_row
    where stargate_row.{watermark} is null
)

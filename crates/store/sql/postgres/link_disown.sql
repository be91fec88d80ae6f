-- $1 source, $2 items, $3 marks
with turned as (
    update stargate.source_link l set stage = 2
      from unnest($2::text[], $3::text[]) c (item, mark)
     where l.source = $1::text and l.item = c.item and l.mark = c.mark and l.stage < 2
    returning 1
)
select count(*) from turned

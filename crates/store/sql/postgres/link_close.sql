-- $1 source, $2 items, $3 marks
with turned as (
    delete from stargate.source_link l
     using unnest($2::text[], $3::text[]) c (item, mark)
     where l.source = $1::text and l.item = c.item and l.mark = c.mark
    returning 1
)
select count(*) from turned

-- Notes that a table is a sink, and its mapped columns. $1 now, $2 name, $3 columns
insert into {registry} (table_name, columns, created_at)
values ($2::text, $3::text::json, coalesce($1::timestamptz, now()))
    on conflict (table_name) do update set columns = excluded.columns

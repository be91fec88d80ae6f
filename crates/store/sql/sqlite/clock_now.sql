select coalesce(?1, cast(round(unixepoch('subsec') * 1000) * 1000 as integer))

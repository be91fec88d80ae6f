-- Only on SQLite: pages are merged from one stream a lane in the program; Postgres joins the lanes.
select id from lane where (?1 is null or queue = ?1) and (?2 is null or kind = ?2)

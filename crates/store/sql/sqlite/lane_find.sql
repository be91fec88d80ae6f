-- Only on SQLite: on Postgres lane_ensure.sql finds or makes a lane.
select id from lane where queue = ?1 and kind = ?2 and limit_key = ?3

-- Only on SQLite: on Postgres lane_ensure.sql finds or makes a lane.
insert into lane (queue, kind, limit_key) values (?1, ?2, ?3) returning id

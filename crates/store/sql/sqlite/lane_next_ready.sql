-- Only on SQLite: one step of the skip-scan over lanes that have ready jobs; Postgres does all steps in one recursive statement.
select lane_id from job where stage = 0 and lane_id > ?1 order by lane_id limit 1

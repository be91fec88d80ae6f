insert into job (id, lane_id, stage, priority, max_attempts, blockers, run_at, created_at, payload, unique_key, trace_id)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)

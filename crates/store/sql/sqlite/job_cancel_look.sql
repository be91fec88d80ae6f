select lane_id, stage, has_children, cancel_requested, last_seq, worker_id from job where id = ?1

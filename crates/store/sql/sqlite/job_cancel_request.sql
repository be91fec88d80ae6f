update job set cancel_requested = 1, last_seq = last_seq + 1 where id = ?1 and stage = 3 and cancel_requested = 0
returning last_seq

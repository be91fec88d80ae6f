update limit_key set running = max(0, running - ?2) where key = ?1 returning concurrency

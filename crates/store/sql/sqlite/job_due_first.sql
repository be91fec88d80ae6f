select min(run_at) from job where stage = 1

select name, max_attempts, max_crashes from kind order by name

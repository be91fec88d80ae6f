-- Only here because Postgres checks its pages itself. The first damage found, or "ok".
pragma quick_check(1)

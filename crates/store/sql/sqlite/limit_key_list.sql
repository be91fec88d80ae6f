select key from limit_key where key <> ''

select exists (select 1 from token)

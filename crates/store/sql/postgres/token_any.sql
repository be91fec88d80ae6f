select exists (select from stargate.token)

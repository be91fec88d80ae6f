-- Records a migration.
insert into stargate.migration (version, name, checksum) values ($1::bigint, $2::text, $3::text)

insert into migration (version, name, checksum, at) values (?1, ?2, ?3, ?4)

-- A write by hand. ?1 now, ?2 key, ?3 writer, ?4 spec_ref, ?5 what was there, ?6 what is there, ?7 its version
insert into kv_override (key, writer, spec_ref, before, after, version, at) values (?2, ?3, ?4, ?5, ?6, ?7, ?1)

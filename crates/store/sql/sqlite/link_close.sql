delete from source_link where source = ?1 and item = ?2 and mark = ?3

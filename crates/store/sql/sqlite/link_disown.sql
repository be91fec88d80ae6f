update source_link set stage = 2 where source = ?1 and item = ?2 and mark = ?3 and stage < 2

insert into leader_term (epoch, instance, address, began_at) values (?1, ?2, ?3, ?4)

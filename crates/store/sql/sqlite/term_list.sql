select epoch, instance, address, began_at, ended_at, reason from leader_term order by epoch desc limit ?1

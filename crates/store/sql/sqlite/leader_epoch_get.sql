select epoch from leader_epoch

delete from schedule where name = ?1

delete from webhook where id = ?1 returning id

-- Removes a repository. What belongs to it is removed by statements of their own.
delete from repo where name = ?1 returning id

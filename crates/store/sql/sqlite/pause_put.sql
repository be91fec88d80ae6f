insert or ignore into pause (scope, name) values (?1, ?2)

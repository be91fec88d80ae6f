select scope, name from pause order by scope, name

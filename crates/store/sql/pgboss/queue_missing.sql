-- Queues that nobody has created in pg-boss. $1 queues
select n.name from unnest($1::text[]) n (name) where not exists (select from pgboss.queue q where q.name = n.name) order by n.name

-- Which schema pg-boss has installed.
select version from pgboss.version

-- What the server says about its own health. $1 now (null: the server's clock)
select current_setting('server_version') as version,
       current_setting('server_version_num')::integer as version_num,
       clock_timestamp() as server_now,
       current_setting('autovacuum') as autovacuum,
       coalesce((select c.reloptions @> array['autovacuum_enabled=false'] from pg_class c
                  where c.oid = 'stargate.job'::regclass), false) as job_autovacuum_off,
       current_setting('synchronous_commit') as synchronous_commit,
       current_setting('fsync') as fsync,
       current_setting('full_page_writes') as full_page_writes,
       current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint as connections_max,
       (select count(*) from pg_stat_activity a where a.backend_type = 'client backend') as connections,
       coalesce(t.n_live_tup, 0) as job_live,
       coalesce(t.n_dead_tup, 0) as job_dead,
       x.pid, x.age_s, x.who, x.state,
       (select max(age(a.backend_xmin)) from pg_stat_activity a
         where a.datname = current_database() and a.pid <> pg_backend_pid())::bigint as horizon,
       (select string_agg(p.gid, ', ') from pg_prepared_xacts p where p.database = current_database()
           and p.prepared < coalesce($1::timestamptz, clock_timestamp()) - interval '5 minutes') as prepared,
       (select string_agg(s.slot_name, ', ') from pg_replication_slots s
         where not s.active and (s.xmin is not null or s.restart_lsn is not null)) as slots,
       pg_total_relation_size('stargate.job')::bigint as job_bytes,
       pg_total_relation_size('stargate.job_history')::bigint as history_bytes,
       pg_total_relation_size('stargate.job_event')::bigint as event_bytes
  from (select) one
  left join pg_stat_user_tables t on t.relid = 'stargate.job'::regclass
  left join lateral (
        select a.pid, extract(epoch from coalesce($1::timestamptz, clock_timestamp()) - a.xact_start)::double precision as age_s,
               concat_ws(', ', nullif(a.application_name, ''), 'user ' || a.usename, 'from ' || host(a.client_addr)) as who, a.state
          from pg_stat_activity a
         where a.datname = current_database() and a.pid <> pg_backend_pid() and a.xact_start is not null
           and a.backend_type = 'client backend'
         order by a.xact_start limit 1) x on true

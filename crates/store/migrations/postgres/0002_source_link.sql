-- Items of other queues that became jobs here. stage: 0 accepted, 1 held, 2 disowned. A row lives from the acceptance of
-- the item until its end is written at the source.
create table stargate.source_link (
    source text collate "C" not null,
    item   text collate "C" not null,
    job_id bigint not null,
    stage  smallint not null default 0 check (stage between 0 and 2),
    mark   text collate "C" not null,
    terms  json not null,
    primary key (source, item)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
create unique index source_link_job on stargate.source_link (job_id);

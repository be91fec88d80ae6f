-- Items of other queues that became jobs here. stage: 0 accepted, 1 held, 2 disowned. A row lives from the acceptance of
-- the item until its end is written at the source.
create table source_link (
    source text not null,
    item   text not null,
    job_id integer not null,
    stage  integer not null default 0 check (stage between 0 and 2),
    mark   text not null,
    terms  text not null,
    primary key (source, item)
) strict, without rowid;
create unique index source_link_job on source_link (job_id);

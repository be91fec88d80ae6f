-- Jobs, their history, and who runs them. Times are microseconds since 1970; names end in their unit otherwise.

create table meta (
    key   text primary key,
    value text not null
) strict, without rowid;

-- Numbers that only rise: the last job id, the wake counter that other processes watch, the fair share's floor.
create table counter (
    name  text primary key,
    value integer not null
) strict, without rowid;
insert into counter (name, value) values ('job_id', 0), ('wake', 0), ('vtime', 0);

create table kind (
    name         text primary key,
    max_attempts integer not null check (max_attempts >= 1),
    max_crashes  integer not null check (max_crashes >= 1)
) strict, without rowid;

-- What jobs have in common that wait in the same line; a job row carries the number only. The counts are kept by
-- the same transaction that moves a job, so that an overview of a million jobs reads a handful of rows.
create table lane (
    id         integer primary key autoincrement,
    queue      text not null,
    kind       text not null,
    limit_key  text not null default '',
    ready      integer not null default 0,
    delayed    integer not null default 0,
    blocked    integer not null default 0,
    processing integer not null default 0,
    failed     integer not null default 0,
    unique (queue, kind, limit_key)
) strict;

-- Unfinished jobs. stage: 0 ready, 1 delayed, 2 blocked, 3 processing. Ids come from counter, not from the rowid:
-- rows leave this table, and SQLite would give the highest number out again.
create table job (
    id               integer primary key,
    lane_id          integer not null,
    stage            integer not null check (stage between 0 and 3),
    priority         integer not null check (priority between 0 and 9999),
    attempt          integer not null default 0 check (attempt >= 0),
    max_attempts     integer not null check (max_attempts >= 1),
    crash_count      integer not null default 0,
    progress         integer not null default 0 check (progress between 0 and 100),
    blockers         integer not null default 0 check (blockers >= 0),
    has_children     integer not null default 0,
    cancel_requested integer not null default 0,
    last_seq         integer not null default 1,
    started_seq      integer not null default 0,
    worker_id        integer,
    lease_ms         integer,
    token            integer,
    run_at           integer not null,
    created_at       integer not null,
    started_at       integer,
    payload          text not null,
    unique_key       text,
    trace_id         text,
    error            text,
    check (stage <> 3 or (worker_id is not null and lease_ms is not null and token is not null)),
    check ((stage = 2) = (blockers > 0))
) strict;
create index job_ready on job (lane_id, priority desc, run_at, id) where stage = 0;
create index job_delayed on job (run_at) where stage = 1;
create index job_held on job (worker_id) where stage = 3;
create unique index job_unique_key on job (unique_key) where unique_key is not null;
-- For listings by kind or queue; a claim does not touch it.
create index job_lane on job (lane_id, id);

-- Finished jobs. state: 2 done, 3 failed, 4 cancelled.
create table job_history (
    id           integer primary key,
    lane_id      integer not null,
    state        integer not null check (state between 2 and 4),
    priority     integer not null,
    attempt      integer not null,
    max_attempts integer not null,
    crash_count  integer not null,
    progress     integer not null,
    last_seq     integer not null,
    started_seq  integer not null,
    worker_id    integer,
    run_at       integer not null,
    created_at   integer not null,
    started_at   integer,
    finished_at  integer not null,
    payload      text not null,
    result       text,
    unique_key   text,
    trace_id     text,
    error        text
) strict;
create index job_history_lane on job_history (lane_id, state, id);
create index job_history_not_done on job_history (state, id) where state <> 2;
create index job_history_finished on job_history (state, finished_at);

create table job_event (
    job_id integer not null,
    seq    integer not null,
    at     integer not null,
    event  text not null,
    data   text not null,
    primary key (job_id, seq)
) strict, without rowid;

create table job_parent (
    job_id    integer not null,
    parent_id integer not null,
    primary key (job_id, parent_id)
) strict, without rowid;
create index job_parent_parent on job_parent (parent_id);

-- A job's lease ends at beat_at + job.lease_ms. Rows of workers that are gone stay for their names.
create table worker (
    id           integer primary key autoincrement,
    name         text not null,
    kinds        text not null,
    queues       text not null,
    concurrency  integer not null,
    lease_min_ms integer not null,
    lease_max_ms integer not null,
    started_at   integer not null,
    beat_at      integer not null,
    gone_at      integer
) strict;
create index worker_here on worker (id) where gone_at is null;

create table job_cancel (
    worker_id integer not null,
    job_id    integer not null,
    primary key (worker_id, job_id)
) strict, without rowid;

create table pause (
    scope text not null check (scope in ('queue', 'kind')),
    name  text not null,
    primary key (scope, name)
) strict, without rowid;

create table limit_rule (
    pattern     text primary key,
    concurrency integer,
    rate_count  integer,
    rate_per_ms integer,
    weight      integer not null check (weight between 1 and 1000),
    check ((rate_count is null) = (rate_per_ms is null))
) strict, without rowid;

-- The rule that applies to a key, and its present use. vtime is in millionths of a claim at weight 1. The row with
-- the empty key stands for all jobs without one.
create table limit_key (
    key         text primary key,
    concurrency integer,
    rate_count  integer,
    rate_per_ms integer,
    weight      integer not null default 1,
    running     integer not null default 0 check (running >= 0),
    tokens      real not null default 0,
    refilled_at integer not null default 0,
    vtime       integer not null default 0
) strict, without rowid;

create table schedule (
    name      text primary key,
    cron      text not null,
    time_zone text not null,
    kind      text not null,
    queue     text not null,
    payload   text not null,
    priority  integer not null,
    next_at   integer,
    last_at   integer
) strict, without rowid;

create table idempotency (
    key         text primary key,
    fingerprint text not null,
    job_ids     text not null,
    created_at  integer not null
) strict;
create index idempotency_age on idempotency (created_at);

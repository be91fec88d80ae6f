-- Directives: how far they have come, their runs, what they kept aside and what they announce.

-- Small values with a version. value null: removed, and the version goes on from here. expires_at past: as if removed.
-- request_hash: hex of a SHA-256 over what the last request asked for, so that its repetition is told from another one.
create table kv (
    key          text primary key check (length(key) between 1 and 256),
    value        text,
    version      integer not null check (version >= 1),
    request_id   text not null,
    request_hash text not null,
    last_writer  text not null,
    purpose      text not null,
    spec_ref     text,
    expires_at   integer,
    updated_at   integer not null
) strict, without rowid;

-- Writes by hand.
create table kv_override (
    id       integer primary key autoincrement,
    key      text not null,
    writer   text not null,
    spec_ref text not null,
    before   text,
    after    text,
    version  integer not null,
    at       integer not null
) strict;
create index kv_override_key on kv_override (key, id);

-- lease_key: where its lease is kept. batch_*: the last batch, its lease and what was answered, for when that answer
-- was lost.
create table directive_run (
    id              text primary key check (length(id) between 1 and 256),
    directive       text not null,
    tenant_id       text not null,
    project_id      text not null,
    engine          text not null,
    workflow_id     text not null,
    worker          text not null,
    lease_key       text not null,
    outcome         text check (outcome in ('succeeded', 'failed', 'cancelled')),
    pages           integer not null default 0,
    created         integer not null default 0,
    updated         integer not null default 0,
    unchanged       integer not null default 0,
    failed          integer not null default 0,
    cursor          text,
    beat            text not null,
    cancel_asked    integer not null default 0,
    source_ended    integer not null default 0,
    error           text,
    batch_request   text,
    batch_lease     integer,
    batch_created   integer not null default 0,
    batch_updated   integer not null default 0,
    batch_unchanged integer not null default 0,
    batch_failed    integer not null default 0,
    batch_cursor    integer,
    started_at      integer not null,
    updated_at      integer not null,
    ended_at        integer
) strict, without rowid;
create index directive_run_time on directive_run (started_at, id);
create index directive_run_directive on directive_run (directive, started_at, id);
create index directive_run_open on directive_run (lease_key) where ended_at is null;

-- Records that could not become items. record_hash: hex of a SHA-256 of the record.
create table directive_quarantine (
    id          integer primary key autoincrement,
    directive   text not null,
    tenant_id   text not null,
    project_id  text not null,
    record_hash text not null check (length(record_hash) = 64),
    run_id      text not null,
    record      text not null,
    cause       text not null,
    reason      text not null,
    entity_id   text,
    seen        integer not null default 1,
    created_at  integer not null,
    resolved_at integer,
    unique (directive, tenant_id, project_id, record_hash)
) strict;
create index directive_quarantine_open on directive_quarantine (directive, id) where resolved_at is null;
create index directive_quarantine_all on directive_quarantine (directive, id);
create index directive_quarantine_entity on directive_quarantine (directive, tenant_id, project_id, entity_id)
 where resolved_at is null and entity_id is not null;
create index directive_quarantine_done on directive_quarantine (resolved_at) where resolved_at is not null;

-- Changes that others are to hear of.
create table directive_outbox (
    id           integer primary key autoincrement,
    topic        text not null,
    key          text not null,
    payload      text not null,
    created_at   integer not null,
    attempts     integer not null default 0,
    problem      text,
    delivered_at integer
) strict;
create index directive_outbox_open on directive_outbox (topic, id) where delivered_at is null;
create index directive_outbox_done on directive_outbox (delivered_at) where delivered_at is not null;

-- Tables that directives write to. columns: the mapped ones as JSON, [{"name", "kind"}].
create table directive_sink (
    table_name text primary key,
    columns    text not null,
    created_at integer not null
) strict, without rowid;

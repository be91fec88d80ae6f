-- Directives: how far they have come, their runs, what they kept aside and what they announce.

-- Small values with a version. value null: removed, and the version goes on from here. expires_at past: as if removed.
-- request_hash: hex of a SHA-256 over what the last request asked for, so that its repetition is told from another one.
create table stargate.kv (
    key          text collate "C" primary key check (octet_length(key) between 1 and 256),
    value        json,
    version      bigint not null check (version >= 1),
    request_id   text not null,
    request_hash text not null,
    last_writer  text not null,
    purpose      text not null,
    spec_ref     text,
    expires_at   timestamptz,
    updated_at   timestamptz not null
);

-- Writes by hand.
create table stargate.kv_override (
    id       bigint generated always as identity primary key,
    key      text collate "C" not null,
    writer   text not null,
    spec_ref text not null,
    before   json,
    after    json,
    version  bigint not null,
    at       timestamptz not null
);
create index kv_override_key on stargate.kv_override (key, id);

-- lease_key: where its lease is kept. batch_*: the last batch, its lease and what was answered, for when that answer
-- was lost.
create table stargate.directive_run (
    id              text collate "C" primary key check (octet_length(id) between 1 and 256),
    directive       text collate "C" not null,
    tenant_id       text collate "C" not null,
    project_id      text collate "C" not null,
    engine          text not null,
    workflow_id     text not null,
    worker          text not null,
    lease_key       text collate "C" not null,
    outcome         text check (outcome in ('succeeded', 'failed', 'cancelled')),
    pages           bigint not null default 0,
    created         bigint not null default 0,
    updated         bigint not null default 0,
    unchanged       bigint not null default 0,
    failed          bigint not null default 0,
    cursor          json,
    beat            json not null,
    cancel_asked    boolean not null default false,
    source_ended    boolean not null default false,
    error           text,
    batch_request   text,
    batch_lease     bigint,
    batch_created   bigint not null default 0,
    batch_updated   bigint not null default 0,
    batch_unchanged bigint not null default 0,
    batch_failed    bigint not null default 0,
    batch_cursor    bigint,
    started_at      timestamptz not null,
    updated_at      timestamptz not null,
    ended_at        timestamptz
) with (fillfactor = 50);
create index directive_run_time on stargate.directive_run (started_at, id);
create index directive_run_directive on stargate.directive_run (directive, started_at, id);
create index directive_run_open on stargate.directive_run (lease_key) where ended_at is null;

-- Records that could not become items. record_hash: hex of a SHA-256 of the record.
create table stargate.directive_quarantine (
    id          bigint generated always as identity primary key,
    directive   text collate "C" not null,
    tenant_id   text collate "C" not null,
    project_id  text collate "C" not null,
    record_hash text collate "C" not null check (octet_length(record_hash) = 64),
    run_id      text not null,
    record      json not null,
    cause       text not null,
    reason      text not null,
    entity_id   text collate "C",
    seen        bigint not null default 1,
    created_at  timestamptz not null,
    resolved_at timestamptz,
    unique (directive, tenant_id, project_id, record_hash)
);
create index directive_quarantine_open on stargate.directive_quarantine (directive, id) where resolved_at is null;
create index directive_quarantine_all on stargate.directive_quarantine (directive, id);
create index directive_quarantine_entity on stargate.directive_quarantine (directive, tenant_id, project_id, entity_id)
 where resolved_at is null and entity_id is not null;
create index directive_quarantine_done on stargate.directive_quarantine (resolved_at) where resolved_at is not null;

-- Changes that others are to hear of.
create table stargate.directive_outbox (
    id           bigint generated always as identity primary key,
    topic        text collate "C" not null,
    key          text collate "C" not null,
    payload      json not null,
    created_at   timestamptz not null,
    attempts     integer not null default 0,
    problem      text,
    delivered_at timestamptz
);
create index directive_outbox_open on stargate.directive_outbox (topic, id) where delivered_at is null;
create index directive_outbox_done on stargate.directive_outbox (delivered_at) where delivered_at is not null;

-- Tables that directives write to. columns: the mapped ones as JSON, [{"name", "kind"}].
create table stargate.directive_sink (
    table_name text collate "C" primary key,
    columns    json not null,
    created_at timestamptz not null
);

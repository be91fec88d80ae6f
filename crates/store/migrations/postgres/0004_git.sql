-- Repositories, what was pushed to them, and who is to hear of it. The refs themselves are git's.

-- default_event_id and default_old_oid: the event that default_oid was taken from, and where that began.
create table stargate.repo (
    id               bigint generated always as identity primary key,
    name             text collate "C" not null unique check (octet_length(name) between 1 and 302),
    default_branch   text collate "C" not null,
    default_oid      text collate "C",
    default_old_oid  text collate "C",
    default_event_id bigint,
    size_bytes       bigint check (size_bytes >= 0),
    objects          bigint check (objects >= 0),
    sized_at         timestamptz,
    pushed_at        timestamptz,
    created_at       timestamptz not null
);

-- One ref of one push. request_id names the receive: the same push reported again finds its rows.
create table stargate.push_event (
    id           bigint generated always as identity primary key,
    repo_id      bigint not null references stargate.repo (id) on delete cascade,
    ref_name     text collate "C" not null check (octet_length(ref_name) between 1 and 1024),
    old_oid      text collate "C" not null check (octet_length(old_oid) in (40, 64)),
    new_oid      text collate "C" not null check (octet_length(new_oid) in (40, 64)),
    request_id   text collate "C" not null check (octet_length(request_id) between 1 and 200),
    pusher       text,
    epoch        bigint,
    received_at  timestamptz not null,
    created_at   timestamptz not null,
    processed_at timestamptz,
    unique (repo_id, request_id, ref_name, old_oid, new_oid)
);
create index push_event_repo on stargate.push_event (repo_id, id);
create index push_event_open on stargate.push_event (id) where processed_at is null;
create index push_event_processed on stargate.push_event (processed_at) where processed_at is not null;

-- repo_id null: of all repositories. secret_ref names a secret of the configuration; the secret itself is never here.
create table stargate.webhook (
    id         bigint generated always as identity primary key,
    repo_id    bigint references stargate.repo (id) on delete cascade,
    url        text collate "C" not null check (octet_length(url) <= 2000),
    secret_ref text,
    events     json not null,
    created_at timestamptz not null
);
create unique index webhook_name on stargate.webhook (coalesce(repo_id, 0), url);

-- One event for one hook, once. A job webhook:deliver is enqueued with the row.
create table stargate.webhook_outbox (
    id           bigint generated always as identity primary key,
    event_id     bigint not null references stargate.push_event (id) on delete cascade,
    webhook_id   bigint not null references stargate.webhook (id) on delete cascade,
    created_at   timestamptz not null,
    delivered_at timestamptz,
    unique (event_id, webhook_id)
);
create index webhook_outbox_hook on stargate.webhook_outbox (webhook_id);

-- Repositories, what was pushed to them, and who is to hear of it. The refs themselves are git's.

-- default_event_id and default_old_oid: the event that default_oid was taken from, and where that began.
create table repo (
    id               integer primary key autoincrement,
    name             text not null unique check (length(name) between 1 and 302),
    default_branch   text not null,
    default_oid      text,
    default_old_oid  text,
    default_event_id integer,
    size_bytes       integer check (size_bytes >= 0),
    objects          integer check (objects >= 0),
    sized_at         integer,
    pushed_at        integer,
    created_at       integer not null
) strict;

-- One ref of one push. request_id names the receive: the same push reported again finds its rows. Numbers are not given
-- out again when rows go: jobs name them.
create table push_event (
    id           integer primary key autoincrement,
    repo_id      integer not null,
    ref_name     text not null,
    old_oid      text not null check (length(old_oid) in (40, 64)),
    new_oid      text not null check (length(new_oid) in (40, 64)),
    request_id   text not null,
    pusher       text,
    epoch        integer,
    received_at  integer not null,
    created_at   integer not null,
    processed_at integer,
    unique (repo_id, request_id, ref_name, old_oid, new_oid)
) strict;
create index push_event_repo on push_event (repo_id, id);
create index push_event_open on push_event (id) where processed_at is null;
create index push_event_processed on push_event (processed_at) where processed_at is not null;

-- repo_id null: of all repositories. secret_ref names a secret of the configuration; the secret itself is never here.
create table webhook (
    id         integer primary key autoincrement,
    repo_id    integer,
    url        text not null,
    secret_ref text,
    events     text not null,
    created_at integer not null
) strict;
create unique index webhook_name on webhook (coalesce(repo_id, 0), url);

-- One event for one hook, once. A job webhook:deliver is enqueued with the row.
create table webhook_outbox (
    id           integer primary key autoincrement,
    event_id     integer not null,
    webhook_id   integer not null,
    created_at   integer not null,
    delivered_at integer,
    unique (event_id, webhook_id)
) strict;
create index webhook_outbox_hook on webhook_outbox (webhook_id);

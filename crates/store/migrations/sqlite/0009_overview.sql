-- What operators look at, and what they did.

-- Audited actions, begun before they are carried out: outcome null is one under way, or one whose process died. Rows are
-- added and purged, never changed but for their outcome, which is entered once. Named with stargate_ because sinks of
-- directives lie beside the store's own tables, and some may be called audit.
create table stargate_audit (
    id          integer primary key autoincrement,
    at          integer not null,
    actor       text not null,
    token_id    text,
    role        text not null,
    action      text not null,
    target      text not null,
    detail      text not null,
    request_id  text,
    source      text not null check (source in ('api', 'page', 'cli')),
    finished_at integer,
    outcome     text,
    check ((finished_at is null) = (outcome is null))
) strict;
create index stargate_audit_at on stargate_audit (at);

-- Errors are looked into from here on, which Postgres cannot do where they hold U+0000; none is written any more.
update job_history set error = replace(error, '\u0000', '\ufffd') where state <> 2 and instr(error, '\u0000') > 0;
update job set error = replace(error, '\u0000', '\ufffd') where instr(error, '\u0000') > 0;

-- Failed jobs by the code of their error. Jobs that end well are not in it.
create index job_history_code on job_history (json_extract(error, '$.code'), lane_id, id) where state = 3;

-- What operators look at, and what they did.

-- Audited actions, begun before they are carried out: outcome null is one under way, or one whose process died. Rows are
-- added and purged, never changed but for their outcome, which is entered once. Named as on SQLite, where sinks of
-- directives lie beside the store's own tables, and some may be called audit.
create table stargate.stargate_audit (
    id          bigint generated always as identity primary key,
    at          timestamptz not null,
    actor       text collate "C" not null,
    token_id    text collate "C",
    role        text not null,
    action      text collate "C" not null,
    target      text collate "C" not null,
    detail      json not null,
    request_id  text,
    source      text not null check (source in ('api', 'page', 'cli')),
    finished_at timestamptz,
    outcome     text,
    check ((finished_at is null) = (outcome is null))
);
create index stargate_audit_at on stargate.stargate_audit (at);
create index stargate_audit_actor on stargate.stargate_audit (actor, id);
create index stargate_audit_action on stargate.stargate_audit (action, id);
create index stargate_audit_target on stargate.stargate_audit (target, id);

-- Errors are looked into from here on, which Postgres cannot do where they hold U+0000; none is written any more.
update stargate.job_history set error = replace(error::text, '\u0000', '\ufffd')::json
 where state <> 2 and strpos(error::text, '\u0000') > 0;
update stargate.job set error = replace(error::text, '\u0000', '\ufffd')::json where strpos(error::text, '\u0000') > 0;

-- Failed jobs by the code of their error. Jobs that end well are not in it.
create index job_history_code on stargate.job_history ((error ->> 'code') collate "C", lane_id, id) where state = 3;

-- An id from which on no job was created before an instant: the other end of created_from, with the same margin.
create function stargate.created_until(until timestamptz) returns bigint
language plpgsql stable as $$
declare
    low bigint := (select least((select min(j.id) from stargate.job j), (select min(h.id) from stargate.job_history h)));
    high bigint := (select greatest((select max(j.id) from stargate.job j), (select max(h.id) from stargate.job_history h))) + 1;
    middle bigint;
    created timestamptz;
begin
    while high - low > 1000 loop
        middle := low + (high - low) / 2;
        select least((select j.created_at from stargate.job j where j.id >= middle order by j.id limit 1),
                     (select h.created_at from stargate.job_history h where h.id >= middle order by h.id limit 1))
          into created;
        if created > until + interval '1 minute' then
            high := middle;
        else
            low := middle;
        end if;
    end loop;
    return coalesce(high, 0);
end $$;

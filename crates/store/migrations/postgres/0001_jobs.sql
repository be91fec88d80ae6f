-- The job queue. Everything lives in the schema "stargate", which the migrator creates.
-- Names used as keys have the collation "C": bytes compare faster than a language's rules, and the same everywhere.

create table stargate.meta (
    key   text collate "C" primary key,
    value text not null
);

create table stargate.kind (
    name         text collate "C" primary key,
    max_attempts smallint not null check (max_attempts between 1 and 1000),
    max_crashes  smallint not null check (max_crashes between 1 and 1000)
);

-- Where a job waits. A job row carries only the number. Lanes are never removed.
create table stargate.lane (
    id        integer generated always as identity primary key,
    queue     text collate "C" not null,
    kind      text collate "C" not null references stargate.kind (name),
    limit_key text collate "C" not null default '',
    unique (queue, kind, limit_key)
);

create table stargate.worker (
    id           integer generated always as identity primary key,
    name         text not null,
    kinds        text[] not null,
    queues       text[] not null,
    concurrency  integer not null,
    lease_min_ms integer not null check (lease_min_ms > 0),
    lease_max_ms integer not null check (lease_max_ms >= lease_min_ms),
    started_at   timestamptz not null,
    beat_at      timestamptz not null,
    gone_at      timestamptz
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
-- A beat changes no indexed column, so it stays within its page and touches no index.
create index worker_live on stargate.worker (id) where gone_at is null;

-- The hot table: unfinished jobs only. Wide columns first, so that no byte is lost to alignment.
-- "json" and not "jsonb": the text comes back as it was sent, and neither way costs a conversion.
create table stargate.job (
    id               bigint generated always as identity primary key,
    run_at           timestamptz not null,
    created_at       timestamptz not null,
    started_at       timestamptz,
    token            bigint,
    lane_id          integer not null,
    worker_id        integer,
    lease_ms         integer,
    last_seq         integer not null default 1,
    started_seq      integer not null default 0,
    stage            smallint not null check (stage between 0 and 3),
    priority         smallint not null default 0 check (priority between 0 and 9999),
    attempt          smallint not null default 0 check (attempt >= 0),
    max_attempts     smallint not null check (max_attempts >= 1),
    crash_count      smallint not null default 0,
    blockers         smallint not null default 0 check (blockers >= 0),
    progress         smallint not null default 0 check (progress between 0 and 100),
    has_children     boolean not null default false,
    cancel_requested boolean not null default false,
    payload          json not null,
    unique_key       text collate "C",
    trace_id         text,
    error            json,
    constraint job_processing_is_held check (stage <> 3 or (token is not null and worker_id is not null and lease_ms is not null and started_at is not null)),
    constraint job_waiting_is_not_held check (stage = 3 or token is null),
    constraint job_blocked_has_blockers check (stage <> 2 or blockers > 0)
) with (
    -- Every job is written once, claimed once and deleted once: two dead rows for each that lived.
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_analyze_scale_factor = 0.1, autovacuum_analyze_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
-- No foreign keys from the hot table: each would cost a look-up and a row lock for every job. Lanes stay for ever.
create index job_ready on stargate.job (lane_id, priority desc, run_at, id) where stage = 0;
create index job_delayed on stargate.job (run_at) where stage = 1;
-- For listings by queue or kind; jobs that are ready at once never enter it.
create index job_waiting on stargate.job (lane_id, id) where stage in (1, 2);
create index job_held on stargate.job (worker_id) where stage = 3;
create unique index job_unique on stargate.job (unique_key) where unique_key is not null;

-- Finished jobs.
create table stargate.job_history (
    id               bigint primary key,
    run_at           timestamptz not null,
    created_at       timestamptz not null,
    started_at       timestamptz,
    finished_at      timestamptz not null,
    lane_id          integer not null,
    worker_id        integer,
    last_seq         integer not null,
    started_seq      integer not null,
    state            smallint not null check (state between 2 and 4),
    priority         smallint not null,
    attempt          smallint not null,
    max_attempts     smallint not null,
    crash_count      smallint not null,
    progress         smallint not null,
    cancel_requested boolean not null,
    payload          json not null,
    result           json,
    error            json,
    unique_key       text collate "C",
    trace_id         text
);
create index job_history_lane on stargate.job_history (lane_id, id);
create index job_history_not_done on stargate.job_history (state, id) include (lane_id) where state <> 2;
create index job_history_not_done_lane on stargate.job_history (lane_id, id) where state <> 2;
-- Rows arrive in the order of their end, so a few bytes for each range of pages find the old ones.
create index job_history_finished on stargate.job_history using brin (finished_at) with (pages_per_range = 32, autosummarize = on);

create table stargate.job_event (
    job_id bigint not null,
    seq    integer not null check (seq > 1),
    at     timestamptz not null,
    event  text not null,
    data   json not null,
    primary key (job_id, seq)
);

create table stargate.job_parent (
    job_id    bigint not null,
    parent_id bigint not null,
    primary key (job_id, parent_id)
);
create index job_parent_children on stargate.job_parent (parent_id);

-- Cancellations that the worker has yet to hear of.
create table stargate.job_cancel (
    worker_id integer not null,
    job_id    bigint not null,
    primary key (worker_id, job_id)
);

create table stargate.pause (
    scope text collate "C" not null check (scope in ('queue', 'kind')),
    name  text collate "C" not null,
    primary key (scope, name)
);

create table stargate.limit_rule (
    pattern     text collate "C" primary key,
    concurrency integer check (concurrency > 0),
    rate_count  integer check (rate_count > 0),
    rate_per_ms bigint check (rate_per_ms > 0),
    weight      integer not null default 1 check (weight between 1 and 1000),
    check ((rate_count is null) = (rate_per_ms is null))
);

-- One row a key that was ever used, with the rule that applies to it; '' stands for all jobs without a key.
create table stargate.limit_key (
    key         text collate "C" primary key,
    concurrency integer,
    rate_count  integer,
    rate_per_ms bigint,
    weight      integer not null default 1,
    running     integer not null default 0,
    tokens      double precision,
    refilled_at timestamptz,
    vtime       double precision not null default 0
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
insert into stargate.limit_key (key) values ('');

-- The virtual time of fair sharing: where the key that was served last stands. A key that comes back from idleness
-- starts here, so that it cannot hoard credit.
create table stargate.limit_clock (
    only_row boolean primary key default true check (only_row),
    vtime    double precision not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
insert into stargate.limit_clock (vtime) values (0);

create table stargate.schedule (
    name      text collate "C" primary key,
    cron      text not null,
    time_zone text not null,
    kind      text collate "C" not null,
    queue     text collate "C" not null,
    payload   json not null,
    priority  smallint not null,
    next_at   timestamptz,
    last_at   timestamptz
);

create table stargate.idempotency (
    key         text collate "C" primary key,
    fingerprint text not null,
    job_ids     bigint[] not null default '{}',
    created_at  timestamptz not null
);
create index idempotency_created on stargate.idempotency (created_at);

-- The lane of a queue, kind and key, made if need be; null when nobody registered the kind.
create function stargate.lane_of(queue text, kind text, limit_key text) returns integer
language plpgsql volatile as $$
declare
    found_id integer;
    key_ text := coalesce(limit_key, '');
begin
    loop
        select l.id into found_id from stargate.lane l
         where l.queue = lane_of.queue and l.kind = lane_of.kind and l.limit_key = key_;
        if found then
            return found_id;
        end if;
        perform from stargate.kind k where k.name = lane_of.kind;
        if not found then
            return null;
        end if;
        -- The key's row comes first: a lane that can be seen has its limits.
        if key_ <> '' then
            insert into stargate.limit_key (key, vtime) values (key_, (select vtime from stargate.limit_clock))
            on conflict do nothing;
            if found then
                perform stargate.limit_apply(key_);
            end if;
        end if;
        insert into stargate.lane (queue, kind, limit_key) values (lane_of.queue, lane_of.kind, key_)
        on conflict do nothing;
    end loop;
end $$;

-- Gives keys the most specific rule that matches: all of them, or one. Tokens already spent stay spent.
create function stargate.limit_apply(only_key text) returns void
language sql volatile as $$
    with locked as (
        select k.key from stargate.limit_key k
         where k.key <> '' and (only_key is null or k.key = only_key)
         order by k.key for update
    )
    update stargate.limit_key k
       set concurrency = r.concurrency,
           rate_count = r.rate_count,
           rate_per_ms = r.rate_per_ms,
           weight = coalesce(r.weight, 1),
           tokens = case when r.rate_count is null then null
                         when k.tokens is null then r.rate_count
                         else least(k.tokens, r.rate_count) end
      from locked l
      left join lateral (
            select * from stargate.limit_rule r
             where r.pattern = l.key
                or (right(r.pattern, 1) = '*' and starts_with(l.key, left(r.pattern, -1)))
             order by right(r.pattern, 1) <> '*' desc, length(r.pattern) desc
             limit 1
           ) r on true
     where k.key = l.key
$$;

-- Refuses what the library refuses, in the same words.
create function stargate.enqueue_check(
    kind text, payload json, queue text, priority integer, run_at timestamptz, unique_key text, limit_key text,
    max_attempts integer, after bigint[]
) returns void
language plpgsql as $$
declare
    problem text;
begin
    problem := case
        when kind is null or kind !~ '^[A-Za-z0-9._:/-]{1,100}$' then
            format('kind %s is not a name: 1 to 100 letters, digits and . _ : / - are allowed', to_json(coalesce(kind, '')))
        when queue is null or queue !~ '^[A-Za-z0-9._:/-]{1,100}$' then
            format('queue %s is not a name: 1 to 100 letters, digits and . _ : / - are allowed', to_json(coalesce(queue, '')))
        when payload is null then
            'payload is null; pass ''{}'' for no input'
        when octet_length(payload::text) > 1048576 then
            format('payload has %s bytes; at most 1048576 are allowed; store the data elsewhere and send a reference', octet_length(payload::text))
        -- Only what has brackets enough is worth a walk.
        when octet_length(payload::text) - octet_length(translate(payload::text, '[{', '')) > 500
             and jsonb_path_exists(payload::jsonb, 'strict $.**{500} ? (@.type() == "array" || @.type() == "object")') then
            'payload is nested more than 500 levels deep'
        when priority is null or priority not between 0 and 9999 then
            format('priority is %s; allowed are 0 (lowest) to 9999 (runs first)', coalesce(priority::text, 'null'))
        when max_attempts not between 1 and 1000 then
            format('max_attempts is %s; allowed are 1 to 1000', max_attempts)
        when cardinality(after) > 1000 then
            format('after names %s jobs; at most 1000 are allowed', cardinality(after))
        when octet_length(unique_key) not between 1 and 255 then
            format('unique_key %s has %s bytes; allowed are 1 to 255 without NUL', to_json(unique_key), octet_length(unique_key))
        when octet_length(limit_key) not between 1 and 255 then
            format('limit_key %s has %s bytes; allowed are 1 to 255 without NUL', to_json(limit_key), octet_length(limit_key))
        when run_at < now() - interval '60 seconds' then
            format('run_at lies %s s in the past; leave it out to run the job at once',
                case when isfinite(run_at) then round(extract(epoch from now() - run_at))::text else 'infinitely many' end)
        when run_at > now() + interval '3660 days' then
            'run_at lies more than ten years ahead; is it in milliseconds?'
    end;
    if problem is not null then
        raise exception using message = problem, errcode = 'invalid_parameter_value';
    end if;
end $$;

-- What the parents of a new job mean for it: how many are open, and the first that did not end well. Locks the open
-- ones, so that none of them can end unnoticed meanwhile.
create function stargate.parents_lock(after bigint[], out open integer, out broken bigint, out broken_state smallint)
language plpgsql volatile as $$
declare
    wanted bigint[] := array(select distinct p from unnest(after) p where p is not null);
    open_ids bigint[];
    ended_ids bigint[];
begin
    -- A parent can be on its way from one table to the other while we look; whoever moved it has committed by the
    -- time the next round looks.
    for round in 1 .. 3 loop
        open_ids := array(select j.id from stargate.job j where j.id = any (wanted) order by j.id for no key update);
        ended_ids := array(select h.id from stargate.job_history h where h.id = any (wanted) and h.id <> all (open_ids));
        if cardinality(open_ids) + cardinality(ended_ids) = cardinality(wanted) then
            select h.id, h.state into broken, broken_state from stargate.job_history h
             where h.id = any (ended_ids) and h.state <> 2 order by h.id limit 1;
            update stargate.job j set has_children = true where j.id = any (open_ids) and not j.has_children;
            open := cardinality(open_ids);
            return;
        end if;
    end loop;
    raise exception using errcode = 'SG404', message = format('no job %s',
        (select min(p) from unnest(wanted) p where p <> all (open_ids) and p <> all (ended_ids)));
end $$;

-- For applications: enqueues a job within the caller's own transaction. Answers its id, or that of the unfinished
-- job that holds the unique key.
create function stargate.enqueue(
    kind text, payload jsonb default '{}', queue text default 'default', priority integer default 0,
    run_at timestamptz default null, delay interval default null, unique_key text default null,
    limit_key text default null, max_attempts integer default null, after bigint[] default null
) returns bigint
language plpgsql volatile as $$
#variable_conflict use_column
declare
    lane integer;
    broken_id bigint;
    broken_as smallint;
    open_parents integer := 0;
    due timestamptz := coalesce(enqueue.run_at, now() + enqueue.delay, now());
    new_id bigint;
begin
    perform stargate.enqueue_check(kind, payload::json, queue, priority, due, unique_key, limit_key, max_attempts, after);
    lane := stargate.lane_of(queue, kind, limit_key);
    if lane is null then
        raise exception using errcode = 'invalid_parameter_value', message = format('unknown kind %s; known kinds: %s',
            to_json(kind), coalesce((select string_agg(k.name, ', ' order by k.name) from stargate.kind k), 'none yet'));
    end if;
    for round in 1 .. 10 loop
        if unique_key is not null then
            select j.id into new_id from stargate.job j where j.unique_key = enqueue.unique_key;
            if found then
                return new_id;
            end if;
        end if;
        if cardinality(after) > 0 then
            select case when p.broken is null then p.open else 0 end, p.broken, p.broken_state
              into open_parents, broken_id, broken_as from stargate.parents_lock(after) p;
        end if;
        insert into stargate.job (lane_id, stage, priority, max_attempts, run_at, created_at, payload, unique_key, blockers)
        select lane, case when open_parents > 0 then 2 when due > now() then 1 else 0 end, enqueue.priority,
               coalesce(enqueue.max_attempts, k.max_attempts), due, now(), enqueue.payload::json, enqueue.unique_key,
               open_parents
          from stargate.kind k where k.name = enqueue.kind
        on conflict (unique_key) where unique_key is not null do nothing
        returning id into new_id;
        if new_id is not null then
            insert into stargate.job_parent (job_id, parent_id)
            select distinct new_id, p from unnest(after) p where p is not null;
            if broken_id is not null then
                perform stargate.dependency_failed(array[new_id], array[broken_id], array[broken_as], now());
            end if;
            perform pg_notify('stargate_jobs', '');
            return new_id;
        end if;
        -- Somebody else's insert with this key was not visible yet when we looked; it is now.
    end loop;
    raise exception using errcode = 'serialization_failure',
        message = format('unique_key %s is being enqueued by others; try again', to_json(unique_key));
end $$;

-- For applications: many jobs of one kind at once, everything else by default.
create function stargate.enqueue_many(kind text, payloads jsonb[]) returns setof bigint
language plpgsql volatile as $$
declare
    lane integer;
    one jsonb;
begin
    if payloads is null then
        raise exception using errcode = 'invalid_parameter_value', message = 'payloads is null; pass an array';
    end if;
    foreach one in array payloads loop
        perform stargate.enqueue_check(kind, one::json, 'default', 0, null, null, null, null, null);
    end loop;
    lane := stargate.lane_of('default', kind, null);
    if lane is null then
        raise exception using errcode = 'invalid_parameter_value', message = format('unknown kind %s; known kinds: %s',
            to_json(kind), coalesce((select string_agg(k.name, ', ' order by k.name) from stargate.kind k), 'none yet'));
    end if;
    return query
        insert into stargate.job (lane_id, stage, max_attempts, run_at, created_at, payload)
        select lane, 0, k.max_attempts, now(), now(), p.payload::json
          from unnest(payloads) with ordinality p (payload, n), stargate.kind k
         where k.name = enqueue_many.kind
         order by p.n
        returning id;
    perform pg_notify('stargate_jobs', '');
end $$;

-- Fails waiting jobs, each because of the parent beside it and the state that has, and their own dependents with them.
create function stargate.dependency_failed(job_ids bigint[], parent_ids bigint[], parent_states smallint[], at timestamptz)
returns bigint
language plpgsql volatile as $$
declare
    todo bigint[] := job_ids;
    why bigint[] := parent_ids;
    states smallint[] := parent_states;
    parents bigint[];
    ended bigint;
    failed bigint := 0;
begin
    while cardinality(todo) > 0 loop
        perform from stargate.job j where j.id = any (todo) order by j.id for update;
        with gone as (
            delete from stargate.job j where j.id = any (todo) and j.stage <> 3 returning j.*
        ), cause as (
            select c.id, min(c.parent) as parent, (array_agg(c.state order by c.parent))[1] as state
              from unnest(todo, why, states) c (id, parent, state) group by c.id
        ), kept as (
            insert into stargate.job_history (id, run_at, created_at, started_at, finished_at, lane_id, worker_id, last_seq,
                started_seq, state, priority, attempt, max_attempts, crash_count, progress, cancel_requested, payload, error,
                unique_key, trace_id)
            select g.id, g.run_at, g.created_at, g.started_at, at, g.lane_id, g.worker_id, g.last_seq + 1,
                g.started_seq, 3, g.priority, g.attempt, g.max_attempts, g.crash_count, g.progress, g.cancel_requested, g.payload,
                json_build_object('code', 'DEPENDENCY_FAILED', 'class', 'Fatal', 'message',
                    format('job %s, which this one waits for, is %s', c.parent, (array['done', 'failed', 'cancelled'])[c.state - 1])),
                g.unique_key, g.trace_id
              from gone g join cause c on c.id = g.id
        )
        select coalesce(array_agg(g.id) filter (where g.has_children), '{}'), count(*) into parents, ended from gone g;
        failed := failed + ended;
        select coalesce(array_agg(p.job_id), '{}'), array_agg(p.parent_id), array_agg(3::smallint) into todo, why, states
          from stargate.job_parent p join stargate.job c on c.id = p.job_id and c.stage = 2
         where p.parent_id = any (parents);
    end loop;
    return failed;
end $$;

-- An id below which no job was created at or after an instant. Ids rise with time, but for transactions that took long to
-- commit and clocks that were set back: hence the minute's margin, and no bound at all where there is little to skip.
create function stargate.created_from(since timestamptz) returns bigint
language plpgsql stable as $$
declare
    low bigint := (select least((select min(j.id) from stargate.job j), (select min(h.id) from stargate.job_history h)));
    high bigint := (select greatest((select max(j.id) from stargate.job j), (select max(h.id) from stargate.job_history h)));
    middle bigint;
    created timestamptz;
begin
    while high - low > 1000 loop
        middle := low + (high - low) / 2;
        select least((select j.created_at from stargate.job j where j.id >= middle order by j.id limit 1),
                     (select h.created_at from stargate.job_history h where h.id >= middle order by h.id limit 1))
          into created;
        if created < since - interval '1 minute' then
            low := middle;
        else
            high := middle;
        end if;
    end loop;
    return coalesce(low, 0);
end $$;

-- For people with psql: all jobs with the fields of the documentation.
create view stargate.jobs as
select j.id, l.kind, l.queue, case when j.stage = 3 then 'processing' else 'queued' end as state,
       (array['ready', 'delayed', 'blocked', 'processing'])[j.stage + 1] as stage,
       j.priority, j.attempt as attempt_count, j.max_attempts, j.crash_count, j.progress, j.payload, null::json as result,
       j.error, w.name as worker, j.run_at, j.created_at, j.started_at, null::timestamptz as finished_at,
       case when j.stage = 3 then w.beat_at end as last_heartbeat_at,
       case when j.stage = 3 then w.beat_at + j.lease_ms * interval '1 millisecond' end as lease_expires_at,
       j.unique_key, nullif(l.limit_key, '') as limit_key, j.trace_id, j.cancel_requested
  from stargate.job j
  join stargate.lane l on l.id = j.lane_id
  left join stargate.worker w on w.id = j.worker_id
union all
select h.id, l.kind, l.queue, (array['done', 'failed', 'cancelled'])[h.state - 1], null,
       h.priority, h.attempt, h.max_attempts, h.crash_count, h.progress, h.payload, h.result,
       h.error, w.name, h.run_at, h.created_at, h.started_at, h.finished_at,
       null, null,
       h.unique_key, nullif(l.limit_key, ''), h.trace_id, h.cancel_requested
  from stargate.job_history h
  join stargate.lane l on l.id = h.lane_id
  left join stargate.worker w on w.id = h.worker_id;

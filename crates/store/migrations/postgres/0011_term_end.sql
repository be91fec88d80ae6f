-- The recorded end of a term is a fence, too: what its leader had begun and nobody had waited for is refused from then on, and
-- not only when the next term has begun.

-- As in 0003, and refuses a caller whose term has ended though no other has begun.
create or replace function stargate.leader_hold(mine bigint) returns bigint
language plpgsql volatile as $$
declare
    newest bigint;
begin
    perform set_config('idle_in_transaction_session_timeout', '3s', true);
    lock table stargate.leader_epoch in row share mode;
    perform set_config('lock_timeout', '3s', true), set_config('statement_timeout', '10s', true);
    if current_setting('transaction_isolation') = 'read committed' then
        select e.epoch into strict newest from stargate.leader_epoch e;
        perform from stargate.leader_term t where t.epoch = mine and t.ended_at is null;
    else
        select e.epoch into strict newest from stargate.leader_epoch e for share;
        perform from stargate.leader_term t where t.epoch = mine and t.ended_at is null for share;
    end if;
    if newest <> mine or not found then
        raise exception using errcode = 'SG409', message = format('epoch %s is over: %s', mine, newest);
    end if;
    return newest;
end
$$;

-- Records the end of a term, once: when those who write in it now have committed, and before anybody else can. The clock is read
-- then, so that nothing of the term is later than its end.
create function stargate.term_end(given timestamptz, mine bigint, why text) returns void
language plpgsql volatile set lock_timeout = '5s' as $$
begin
    perform from stargate.leader_term t where t.epoch = mine and t.ended_at is null;
    if not found then
        return;
    end if;
    lock table stargate.leader_epoch in exclusive mode;
    update stargate.leader_term t set ended_at = greatest(t.began_at, coalesce(given, clock_timestamp())), reason = why
     where t.epoch = mine and t.ended_at is null;
end
$$;

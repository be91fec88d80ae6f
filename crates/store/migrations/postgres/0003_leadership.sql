-- Leadership. One row holds the epoch of the newest term, 0 before the first; what a leader writes is compared with it
-- in the same transaction.
create table stargate.leader_epoch (
    one   integer primary key check (one = 1),
    epoch bigint not null check (epoch >= 0)
);
insert into stargate.leader_epoch (one, epoch) values (1, 0);

-- The terms that were, and the one that is. The end of a term is written once.
create table stargate.leader_term (
    epoch    bigint primary key,
    instance text not null,
    address  text,
    began_at timestamptz not null,
    ended_at timestamptz check (ended_at >= began_at),
    reason   text,
    check ((ended_at is null) = (reason is null))
);

-- Has the epoch stay as it is until this transaction ends, and refuses the transaction if it is not the caller's. A lower
-- one is no better: the store was set back, and the caller's term with it.
--
-- The lock on the table, not on its row: whoever begins a term waits for its turn behind those who hold it now and before
-- those who come later, while locks on a row may be joined for ever; and it writes nothing. The row is read after the
-- lock, by a statement of its own, and so as it was committed last; where the server has a transaction see one state from
-- its beginning, the row is locked too, which is refused (40001, to be tried again) if it has changed since.
--
-- A caller must not keep its successor out, though its client stands still or is dead: the server ends a transaction
-- that does nothing, that waits for what others have locked, or whose next statement takes too long.
create function stargate.leader_hold(mine bigint) returns bigint
language plpgsql volatile as $$
declare
    newest bigint;
begin
    perform set_config('idle_in_transaction_session_timeout', '3s', true);
    lock table stargate.leader_epoch in row share mode;
    perform set_config('lock_timeout', '3s', true), set_config('statement_timeout', '10s', true);
    if current_setting('transaction_isolation') = 'read committed' then
        select e.epoch into strict newest from stargate.leader_epoch e;
    else
        select e.epoch into strict newest from stargate.leader_epoch e for share;
    end if;
    if newest <> mine then
        raise exception using errcode = 'SG409', message = format('epoch %s is over: %s', mine, newest);
    end if;
    return newest;
end
$$;

-- Begins a term after the one with the epoch `expected` (0: the first); null if another has begun since. A term that is
-- still open ends now. Nobody's clock may make two terms overlap: a term begins no earlier than the one before it ended,
-- and the clock is read when nobody else can record an end any more.
create function stargate.term_begin(given timestamptz, instance text, address text, expected bigint, keep bigint) returns bigint
language plpgsql volatile set lock_timeout = '5s' as $$
declare
    newest bigint;
    start_ timestamptz;
begin
    lock table stargate.leader_epoch in exclusive mode;
    select e.epoch into strict newest from stargate.leader_epoch e;
    if newest <> expected then
        return null;
    end if;
    newest := newest + 1;
    perform from stargate.leader_term t where t.epoch = expected or t.ended_at is null for update;
    start_ := coalesce(given, clock_timestamp());
    select greatest(start_, max(t.began_at), max(t.ended_at)) into start_
      from stargate.leader_term t where t.epoch = expected or t.ended_at is null;
    update stargate.leader_term t set ended_at = start_, reason = 'superseded' where t.ended_at is null;
    update stargate.leader_epoch set epoch = newest;
    insert into stargate.leader_term (epoch, instance, address, began_at)
    values (newest, term_begin.instance, term_begin.address, start_);
    delete from stargate.leader_term t where t.epoch <= newest - keep;
    return newest;
end
$$;

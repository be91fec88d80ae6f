-- Leadership. One row holds the epoch of the newest term, 0 before the first; what a leader writes is compared with it
-- in the same transaction.
create table leader_epoch (
    one   integer primary key check (one = 1),
    epoch integer not null check (epoch >= 0)
) strict;
insert into leader_epoch (one, epoch) values (1, 0);

-- The terms that were, and the one that is. The end of a term is written once.
create table leader_term (
    epoch    integer primary key,
    instance text not null,
    address  text,
    began_at integer not null,
    ended_at integer check (ended_at >= began_at),
    reason   text,
    check ((ended_at is null) = (reason is null))
) strict;

//! A leader that stands still in the middle of a write must not keep its successor out for ever, nor write when it wakes.

use std::time::Duration;

use stargate_base::{Epoch, ErrorClass};
use stargate_queue::leadership::overlaps;
use stargate_queue::limits::Limit;
use stargate_queue::store::{Once, PauseTarget};
use stargate_queue::{Error, NewJob, Store};
use stargate_store::postgres::{Options, Postgres};
use stargate_testkit::eventually;
use stargate_testkit::proxy::Proxy;
use tokio_postgres::Client;

use crate::{PATIENCE, at, connect, database, host_port, new};

fn target() -> PauseTarget {
    PauseTarget::Kind("a".into())
}

async fn begin(store: &Postgres, seen: Option<u64>) -> Result<Epoch, Error> {
    store.term_begin("node", None, seen.map(Epoch::new)).await
}

/// How many wait for a lock on this table.
async fn waiting_for(client: &Client, table: &str) -> i64 {
    // Tests beside this one have databases with the same numbers.
    let sql = "select count(*) from pg_locks l join pg_database d on d.oid = l.database and d.datname = current_database() \
        where l.relation = $1::text::regclass and not l.granted";
    client.query_one(sql, &[&table]).await.unwrap().get(0)
}

async fn wait_for_lock(client: &Client, table: &str) {
    eventually(PATIENCE, "somebody who waits for the lock", || async {
        match waiting_for(client, table).await {
            0 => Err("nobody".to_owned()),
            _ => Ok(()),
        }
    })
    .await;
}

/// Waits until so many wait for a lock of any kind.
async fn waiting(client: &Client, count: i64) {
    let sql = "select count(*) from pg_stat_activity \
        where datname = current_database() and wait_event_type = 'Lock'";
    eventually(PATIENCE, "those who wait for a lock", || async {
        let found: i64 = client.query_one(sql, &[]).await.unwrap().get(0);
        if found < count { Err(found.to_string()) } else { Ok(()) }
    })
    .await;
}

/// The successor tries as a candidate does: again and again.
async fn succeeds(store: &Postgres, seen: u64) -> Epoch {
    eventually(PATIENCE, "the successor's term", || async {
        begin(store, Some(seen)).await.map_err(|error| format!("{error:?}"))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_frozen_in_the_middle_of_a_write_neither_keeps_its_successor_out_nor_writes_when_it_wakes() {
    let database = database().await;
    let (store, client) = (connect(database.url()).await, database.client().await);
    assert_eq!(begin(&store, None).await.unwrap(), Epoch::new(1));
    let proxy = Proxy::start(&host_port(database.url())).await;
    let options = Options { statement_timeout: Some(Duration::from_secs(60)), ..Options::default() };
    let old = Postgres::connect(&at(database.url(), &proxy.address()), options).await.unwrap();
    let leader = old.under(Epoch::new(1));
    // The write holds the epoch and waits for the table; then its process is frozen.
    client.batch_execute("begin; lock table stargate.pause in access exclusive mode").await.unwrap();
    let mut write = leader.pause(target());
    tokio::select! {
        biased;
        answer = &mut write => panic!("it should wait: {answer:?}"),
        () = wait_for_lock(&client, "stargate.pause") => {}
    }
    proxy.stall();
    client.batch_execute("commit").await.unwrap();

    assert_eq!(succeeds(&store, 1).await, Epoch::new(2));
    assert_eq!(store.pauses().await.unwrap(), [], "the write is rolled back");
    proxy.forward();
    let woken = tokio::time::timeout(PATIENCE, write).await.expect("an answer");
    let error = woken.expect_err("its transaction is gone");
    assert_eq!(error.class(), ErrorClass::RetryableTransient, "{error:?}");
    // Trying again, as retry code does, is judged anew.
    let again = eventually(PATIENCE, "a refusal", || async {
        match leader.pause(target()).await {
            Err(Error::Store { source, .. }) => Err(source.to_string()),
            other => Ok(other),
        }
    })
    .await;
    assert!(matches!(again, Err(Error::Deposed { .. })), "{again:?}");
    assert_eq!(store.pauses().await.unwrap(), []);
    drop((leader, old, store));
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_ends_a_guarded_transaction_that_stands_still() {
    let database = database().await;
    let (store, client) = (connect(database.url()).await, database.client().await);
    begin(&store, None).await.unwrap();
    client.batch_execute("begin; select stargate.leader_hold(1)").await.unwrap();
    assert_eq!(succeeds(&store, 1).await, Epoch::new(2));
    assert!(client.batch_execute("commit").await.is_err(), "its connection was closed");
    drop(store);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_term_that_cannot_begin_in_time_says_so_and_begins_when_it_can() {
    let database = database().await;
    let (store, client) = (connect(database.url()).await, database.client().await);
    begin(&store, None).await.unwrap();
    // Somebody whom the server does not end.
    client.batch_execute("begin; select epoch from stargate.leader_epoch for share").await.unwrap();
    let refused = tokio::time::timeout(PATIENCE, begin(&store, Some(1))).await.expect("an answer in time");
    let error = refused.expect_err("the lock is not free");
    assert_eq!(error.class(), ErrorClass::RetryableTransient, "{error:?}");
    assert_eq!(store.epoch().await.unwrap(), Some(Epoch::new(1)));
    client.batch_execute("rollback").await.unwrap();
    assert_eq!(begin(&store, Some(1)).await.unwrap(), Epoch::new(2));
    drop(store);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leaders_that_write_without_a_pause_do_not_starve_their_successor() {
    let database = database().await;
    let store = connect(database.url()).await;
    begin(&store, None).await.unwrap();
    store.enqueue(vec![new("a")]).await.unwrap();
    let leader = store.under(Epoch::new(1));
    let writers = (0..8).map(|number| {
        let leader = &leader;
        async move {
            for count in 0.. {
                let once = Once { key: format!("{number}-{count}"), fingerprint: "f".into() };
                match leader.enqueue_once(once, vec![new("a")]).await {
                    Ok(_) => {}
                    Err(Error::Deposed { .. }) => return count,
                    Err(error) => panic!("{error:?}"),
                }
            }
            0
        }
    });
    let successor = async {
        eventually(PATIENCE, "writes", || async {
            let depth = store.depth(100).await.unwrap();
            (depth >= 50).then_some(()).ok_or_else(|| depth.to_string())
        })
        .await;
        succeeds(&store, 1).await
    };
    let all = async { tokio::join!(futures::future::join_all(writers), successor) };
    let (_, epoch) = tokio::time::timeout(2 * PATIENCE, all).await.expect("an end");
    assert_eq!(epoch, Epoch::new(2));
    drop((leader, store));
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_term_begins_after_the_writes_that_were_judged_before_it() {
    let database = database().await;
    let (store, client) = (connect(database.url()).await, database.client().await);
    begin(&store, None).await.unwrap();
    let leader = store.under(Epoch::new(1));
    client.batch_execute("begin; lock table stargate.pause in access exclusive mode").await.unwrap();
    let judged = leader.pause(target());
    let others = async {
        wait_for_lock(&client, "stargate.pause").await;
        let successor = begin(&store, Some(1));
        let rest = async {
            wait_for_lock(&client, "stargate.leader_epoch").await;
            client.batch_execute("commit").await.unwrap();
        };
        tokio::join!(successor, rest).0
    };
    let (judged, begun) = tokio::join!(judged, others);
    judged.expect("it was judged before the term began");
    assert_eq!(begun.unwrap(), Epoch::new(2));
    assert_eq!(store.pauses().await.unwrap(), [target()]);
    assert!(matches!(leader.resume(target()).await, Err(Error::Deposed { .. })));
    drop((leader, store));
    database.remove().await;
}

/// A single statement under way, with the snapshot of its beginning, when the next term begins.
#[tokio::test(flavor = "multi_thread")]
async fn an_enqueue_under_way_when_a_term_begins_is_either_before_it_or_refused() {
    const KEY: &str = "select pg_advisory_lock(77)";
    let database = database().await;
    let (store, client) = (connect(database.url()).await, database.client().await);
    begin(&store, None).await.unwrap();
    store.enqueue(vec![new("a")]).await.unwrap();
    let trigger = "create function wait() returns trigger language plpgsql as \
        'begin perform pg_advisory_xact_lock(77); return new; end'; \
        create trigger wait before insert on stargate.job for each row execute function wait()";
    client.batch_execute(trigger).await.unwrap();
    client.batch_execute(KEY).await.unwrap();
    let leader = store.under(Epoch::new(1));
    let others = async {
        let sql = "select count(*) from pg_locks l join pg_database d on d.oid = l.database and d.datname = current_database() \
            where l.locktype = 'advisory' and not l.granted";
        eventually(PATIENCE, "an insert that waits", || async {
            let waiting: i64 = client.query_one(sql, &[]).await.unwrap().get(0);
            if waiting == 0 { Err("none".to_owned()) } else { Ok(()) }
        })
        .await;
        // It holds the epoch already, and the term has to wait, or it does not yet, and must find out.
        let mut successor = std::pin::pin!(begin(&store, Some(1)));
        let begun = tokio::select! {
            begun = &mut successor => Some(begun),
            () = wait_for_lock(&client, "stargate.leader_epoch") => None,
        };
        client.batch_execute("select pg_advisory_unlock(77)").await.unwrap();
        let first = begun.is_some();
        let begun = match begun {
            Some(begun) => begun,
            None => successor.await,
        };
        assert_eq!(begun.unwrap(), Epoch::new(2));
        first
    };
    let (enqueued, term_was_first) = tokio::join!(leader.enqueue(vec![new("a")]), others);
    let depth = store.depth(10).await.unwrap();
    match enqueued {
        Ok(_) => assert_eq!((term_was_first, depth), (false, 2)),
        Err(Error::Deposed { .. }) => assert_eq!((term_was_first, depth), (true, 1)),
        Err(error) => panic!("{error:?}"),
    }
    drop((leader, store));
    database.remove().await;
}

/// A statement that commits by itself runs with whatever isolation the server gives it.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_is_refused_whatever_isolation_the_server_gives_its_statement() {
    for isolation in ["read committed", "repeatable read", "serializable"] {
        let database = database().await;
        let client = database.client().await;
        let set = format!(
            "do $$ begin execute format('alter database %I set default_transaction_isolation = %L', \
                current_database(), '{isolation}'); end $$"
        );
        client.batch_execute(&set).await.unwrap();
        let store = connect(database.url()).await;
        begin(&store, None).await.unwrap();
        let leader = store.under(Epoch::new(1));
        leader.enqueue(vec![new("a")]).await.unwrap();
        // The successor stands before the lock; the enqueue begins, and with it what it sees, and waits behind.
        client.batch_execute("begin; lock table stargate.leader_epoch in row share mode").await.unwrap();
        let write = async {
            waiting(&client, 1).await;
            leader.enqueue(vec![new("a")]).await
        };
        let release = async {
            waiting(&client, 2).await;
            client.batch_execute("commit").await.unwrap();
        };
        let (begun, written, ()) = tokio::join!(begin(&store, Some(1)), write, release);
        assert_eq!(begun.unwrap(), Epoch::new(2), "{isolation}");
        assert!(matches!(written, Err(Error::Deposed { .. })), "{isolation}: {written:?}");
        assert_eq!(store.depth(10).await.unwrap(), 1, "{isolation}");
        store.under(Epoch::new(2)).enqueue(vec![new("a")]).await.unwrap();
        drop((leader, store));
        database.remove().await;
    }
}

/// The client of a guarded write is dead, and a stranger has locked what the write needs.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_waits_for_a_stranger_does_not_keep_the_successor_out() {
    let database = database().await;
    let (store, stranger, look) =
        (connect(database.url()).await, database.client().await, database.client().await);
    begin(&store, None).await.unwrap();
    store.enqueue(vec![new("a")]).await.unwrap();
    stranger
        .batch_execute("begin; lock table stargate.pause, stargate.job in access exclusive mode")
        .await
        .unwrap();
    let leader = store.under(Epoch::new(1));
    let mut pause = leader.pause(target());
    let mut enqueue = leader.enqueue(vec![new("a")]);
    tokio::select! {
        biased;
        answer = &mut pause => panic!("it should wait: {answer:?}"),
        answer = &mut enqueue => panic!("it should wait: {answer:?}"),
        () = waiting(&look, 2) => {}
    }
    // Nobody waits for the answers any more; the server does not know.
    drop((pause, enqueue));
    assert_eq!(succeeds(&store, 1).await, Epoch::new(2));
    stranger.batch_execute("commit").await.unwrap();
    assert_eq!(store.pauses().await.unwrap(), []);
    drop((leader, store));
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guarded_statement_may_not_take_for_ever() {
    let database = database().await;
    let (store, client, look) =
        (connect(database.url()).await, database.client().await, database.client().await);
    begin(&store, None).await.unwrap();
    client.batch_execute("begin; select stargate.leader_hold(1)").await.unwrap();
    // It neither waits for anybody nor stands still.
    let slow = client.batch_execute("select pg_sleep(3600)");
    let (slow, begun) = tokio::join!(slow, async {
        let asleep =
            "select 1 from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'";
        eventually(PATIENCE, "the slow statement", || async {
            let found = look.query(asleep, &[]).await.unwrap();
            if found.is_empty() { Err("none".to_owned()) } else { Ok(()) }
        })
        .await;
        succeeds(&store, 1).await
    });
    assert!(slow.is_err(), "the server ends it");
    assert_eq!(begun, Epoch::new(2));
    drop(store);
    database.remove().await;
}

/// The end of a term is recorded while its successor begins.
#[tokio::test(flavor = "multi_thread")]
async fn a_term_that_ends_while_the_next_begins_does_not_overlap_it() {
    let database = database().await;
    let (store, client, look) =
        (connect(database.url()).await, database.client().await, database.client().await);
    begin(&store, None).await.unwrap();
    client.batch_execute("begin; select 1 from stargate.leader_term for update").await.unwrap();
    let end = async {
        waiting(&look, 1).await;
        let ended = "update stargate.leader_term set ended_at = clock_timestamp(), reason = 'shutdown' \
            where epoch = 1 and ended_at is null; commit";
        client.batch_execute(ended).await.unwrap();
    };
    let (begun, ()) = tokio::join!(begin(&store, Some(1)), end);
    assert_eq!(begun.unwrap(), Epoch::new(2));
    let terms = store.terms(10).await.unwrap();
    assert_eq!(terms[1].reason.as_deref(), Some("shutdown"));
    assert_eq!(overlaps(&terms), [], "{terms:?}");
    drop(store);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_term_is_recorded_when_those_who_write_in_it_have_committed() {
    let database = database().await;
    let (store, client, look) =
        (connect(database.url()).await, database.client().await, database.client().await);
    let epoch = begin(&store, None).await.unwrap();
    let hold = "begin; select stargate.leader_hold(1); set local idle_in_transaction_session_timeout = 0";
    client.batch_execute(hold).await.unwrap();
    look.batch_execute("begin isolation level repeatable read; select from stargate.leader_term")
        .await
        .unwrap();
    let other = database.client().await;
    let written = async {
        wait_for_lock(&other, "stargate.leader_epoch").await;
        assert_eq!(store.terms(1).await.unwrap()[0].ended_at, None, "somebody writes in it");
        let now = "select clock_timestamp()";
        let at: jiff::Timestamp = client.query_one(now, &[]).await.unwrap().get(0);
        client.batch_execute("commit").await.unwrap();
        at
    };
    let (ended, at) = tokio::join!(store.term_end(epoch, "shutdown"), written);
    ended.unwrap();
    let ended_at = store.terms(1).await.unwrap()[0].ended_at.expect("an end");
    assert!(ended_at >= at, "what was written at {at} is later than the end, {ended_at}");
    let late = client.batch_execute("begin; select stargate.leader_hold(1)").await.expect_err("it is over");
    assert_eq!(late.as_db_error().map(|error| error.message()), Some("epoch 1 is over: 1"));
    // A transaction that sees the state from before.
    let stale = look.batch_execute("select stargate.leader_hold(1)").await.expect_err("it is over");
    assert_eq!(stale.code(), Some(&tokio_postgres::error::SqlState::T_R_SERIALIZATION_FAILURE), "{stale:?}");
    drop(store);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_that_wait_do_not_keep_a_node_from_leading() {
    let database = database().await;
    let (store, client, look) =
        (connect(database.url()).await, database.client().await, database.client().await);
    client.batch_execute("begin; lock table stargate.limit_rule in access exclusive mode").await.unwrap();
    let readers = futures::future::join_all((0..8).map(|_| store.limits()));
    let leads = async {
        // As many as there are connections for them.
        waiting(&look, 3).await;
        let begun = async {
            assert_eq!(store.epoch().await.unwrap(), None);
            let epoch = begin(&store, None).await.unwrap();
            store.term_end(epoch, "shutdown").await.unwrap();
            epoch
        };
        let begun = tokio::time::timeout(PATIENCE / 2, begun).await;
        client.batch_execute("commit").await.unwrap();
        begun.expect("a term although all readers wait")
    };
    let (read, epoch) = tokio::join!(readers, leads);
    assert_eq!(epoch, Epoch::new(1));
    assert!(read.iter().all(Result::is_ok), "{read:?}");
    drop(store);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_is_set_and_applied_as_one() {
    let database = database().await;
    let (store, client, look) =
        (connect(database.url()).await, database.client().await, database.client().await);
    begin(&store, None).await.unwrap();
    store.enqueue(vec![NewJob { limit_key: Some("k:1".into()), ..new("a") }]).await.unwrap();
    let limit =
        |concurrency| Limit { pattern: "k:*".into(), concurrency: Some(concurrency), rate: None, weight: 1 };
    let leader = store.under(Epoch::new(1));
    leader.limit_set(limit(5)).await.unwrap();
    // The keys are not to be had: then the rule is not changed either.
    client.batch_execute("begin; lock table stargate.limit_key in access exclusive mode").await.unwrap();
    let refused = leader.limit_set(limit(6)).await.expect_err("the keys are locked");
    assert_eq!(refused.class(), ErrorClass::RetryableTransient, "{refused:?}");
    let removed = leader.limit_remove("k:*").await.expect_err("the keys are locked");
    assert_eq!(removed.class(), ErrorClass::RetryableTransient, "{removed:?}");
    let kept: Option<i32> =
        look.query_one("select concurrency from stargate.limit_rule", &[]).await.unwrap().get(0);
    assert_eq!(kept, Some(5));
    client.batch_execute("commit").await.unwrap();
    leader.limit_set(limit(6)).await.unwrap();
    assert_eq!(store.limit_state("k:1").await.unwrap().unwrap().concurrency, Some(6));
    assert!(leader.limit_remove("k:*").await.unwrap());
    assert_eq!(store.limit_state("k:1").await.unwrap().and_then(|state| state.concurrency), None);
    drop((leader, store));
    database.remove().await;
}

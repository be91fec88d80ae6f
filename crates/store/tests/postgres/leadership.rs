//! A leader that stands still in the middle of a write must not keep its successor out for ever, nor write when it wakes.

use std::time::Duration;

use stargate_base::{Epoch, ErrorClass};
use stargate_queue::store::{Once, PauseTarget};
use stargate_queue::{Error, Store};
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

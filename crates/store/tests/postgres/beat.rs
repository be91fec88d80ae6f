//! Two beats of one worker at once: its heartbeat and its claim.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use stargate_queue::{Error, NewJob, Store as _};
use stargate_store::postgres::{Options, Postgres};
use stargate_testkit::eventually;
use stargate_testkit::proxy::Proxy;
use tokio_postgres::Client;

use crate::{LEASE, PATIENCE, at, claim, connect, database, host_port, new, worker};

const READ: &str = "select beat_at from stargate.worker";

/// INV-6: what a worker has said of itself is not undone by what it began to say before that.
#[tokio::test(flavor = "multi_thread")]
async fn a_beat_that_waits_for_another_does_not_set_the_worker_back() {
    let database = database().await;
    let (store, other, look) =
        (connect(database.url()).await, database.client().await, database.client().await);
    let worker = worker(&store).await;
    other.batch_execute("begin; select from stargate.worker for update").await.unwrap();
    let later = async {
        until_somebody_waits(&look).await;
        let beat = "update stargate.worker set beat_at = clock_timestamp() returning beat_at";
        let at: Timestamp = other.query_one(beat, &[]).await.unwrap().get(0);
        other.batch_execute("commit").await.unwrap();
        at
    };
    let (beat, at) = tokio::join!(store.beat(worker), later);
    assert!(beat.unwrap().known);
    let kept: Timestamp = look.query_one(READ, &[]).await.unwrap().get(0);
    assert_eq!(kept, at);
    drop(store);
    database.remove().await;
}

/// INV-6: a process that stood still in the middle of its look at others must not take their beats for those of a clock that was set
/// back since.
#[tokio::test(flavor = "multi_thread")]
async fn what_others_have_beaten_since_a_transaction_began_is_not_undone() {
    const RESET: &str = include_str!("../../sql/postgres/worker_reset.sql");
    let database = database().await;
    let (store, still, look) =
        (connect(database.url()).await, database.client().await, database.client().await);
    let worker = worker(&store).await;
    look.batch_execute("update stargate.worker set lease_min_ms = 1").await.unwrap();
    still.batch_execute("begin").await.unwrap();
    let began: Timestamp = still.query_one("select now()", &[]).await.unwrap().get(0);
    let beat = eventually(PATIENCE, "a beat a lease later", || async {
        store.beat(worker).await.unwrap();
        let beat: Timestamp = look.query_one(READ, &[]).await.unwrap().get(0);
        let later = beat.duration_since(began) > SignedDuration::from_millis(10);
        if later { Ok(beat) } else { Err(beat.to_string()) }
    })
    .await;
    still.execute(RESET, &[&None::<Timestamp>]).await.unwrap();
    still.batch_execute("commit").await.unwrap();
    let kept: Timestamp = look.query_one(READ, &[]).await.unwrap().get(0);
    assert_eq!(kept, beat);
    drop(store);
    database.remove().await;
}

/// The server does not hear of a client that is gone with its machine or behind a cut wire, for hours by its defaults. What such a
/// client has locked must be free all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_cut_off_while_it_recovers_its_own_jobs_does_not_keep_them() {
    let database = database().await;
    let (store, other, look) =
        (connect(database.url()).await, database.client().await, database.client().await);
    let proxy = Proxy::start(&host_port(database.url())).await;
    let options = Options { statement_timeout: Some(Duration::from_secs(60)), ..Options::default() };
    let old = Postgres::connect(&at(database.url(), &proxy.address()), options).await.unwrap();
    store.enqueue(vec![new("a")]).await.unwrap();
    let lost = worker(&old).await;
    assert_eq!(claim(&old, lost).await.len(), 1);
    look.batch_execute("update stargate.worker set beat_at = now() - interval '1 hour'").await.unwrap();
    // Its beat has locked the worker and waits for the job. Then nothing of it is heard any more.
    other.batch_execute("begin; select from stargate.job for update").await.unwrap();
    let mut beat = old.beat(lost);
    tokio::select! {
        biased;
        answer = &mut beat => panic!("it should wait: {answer:?}"),
        () = until_somebody_waits(&look) => {}
    }
    proxy.stall();
    other.batch_execute("commit").await.unwrap();
    let rescuer = worker(&store).await;
    let claimed = eventually(PATIENCE, "the job of the worker that is cut off", || async {
        claim(&store, rescuer).await.pop().ok_or_else(|| "none".to_owned())
    })
    .await;
    assert_eq!(claimed.fence.attempt, 2);
    drop(beat);
    drop((old, store));
    database.remove().await;
}

pub(super) async fn until_somebody_waits(look: &Client) {
    until_waiting(look, 1).await;
}

async fn until_waiting(look: &Client, sessions: usize) {
    let waits =
        "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    eventually(PATIENCE, "sessions that wait for a lock", || async {
        let found = look.query(waits, &[]).await.unwrap().len();
        if found < sessions { Err(format!("{found} of {sessions}")) } else { Ok(()) }
    })
    .await;
}

/// INV-1: a claim goes on in the server when its process has given up waiting for it, as it does when it ends. What such a claim
/// gives out must not belong to a worker that is gone: nobody looks for the jobs of those.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_not_taken_out_while_a_claim_of_its_own_is_under_way() {
    let database = database().await;
    let (store, other, look) =
        (connect(database.url()).await, database.client().await, database.client().await);
    store.enqueue(vec![NewJob { limit_key: Some("k".into()), ..new("a") }]).await.unwrap();
    let (leaving, rescuer) = (worker(&store).await, worker(&store).await);
    other.batch_execute("begin; select from stargate.limit_key for update").await.unwrap();
    let leave = async {
        until_waiting(&look, 1).await;
        let mut removal = store.worker_remove(leaving);
        let at_once = tokio::select! {
            answer = &mut removal => Some(answer),
            () = until_waiting(&look, 2) => None,
        };
        other.batch_execute("commit").await.unwrap();
        match at_once {
            Some(answer) => answer,
            None => removal.await,
        }
    };
    let (given, removed) = tokio::join!(claim(&store, leaving), leave);
    assert_eq!(given.len(), 1);
    assert!(matches!(removed, Err(Error::Conflict { .. })), "{removed:?}");
    let silence =
        format!("update stargate.worker set beat_at = now() - interval '1 hour' where id = {}", leaving.0);
    look.batch_execute(&silence).await.unwrap();
    let again = claim(&store, rescuer).await;
    assert_eq!(again.iter().map(|job| job.fence.attempt).collect::<Vec<_>>(), [2]);
    drop(store);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_beat_from_before_the_clock_was_set_back_does_not_keep_jobs_for_ever() {
    let database = database().await;
    let (store, look) = (connect(database.url()).await, database.client().await);
    let worker = worker(&store).await;
    look.batch_execute("update stargate.worker set beat_at = now() + interval '1 hour'").await.unwrap();
    assert!(store.beat(worker).await.unwrap().known);
    let kept: Timestamp = look.query_one(READ, &[]).await.unwrap().get(0);
    let now: Timestamp = look.query_one("select clock_timestamp()", &[]).await.unwrap().get(0);
    assert!(
        kept <= now && now.duration_since(kept) < SignedDuration::try_from(LEASE).unwrap(),
        "{kept}, {now}"
    );
    drop(store);
    database.remove().await;
}

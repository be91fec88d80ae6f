//! PgBouncer in transaction mode: every transaction may run on another server connection.

use std::time::Duration;

use stargate_base::{Epoch, Tasks};
use stargate_queue::store::{Outcome, PauseTarget, Settlement, Verdict, WakeMethod};
use stargate_queue::{Error, JobId, NewJob, State, Store};
use stargate_store::postgres::{Options, Postgres};
use stargate_testkit::eventually;
use stargate_testkit::postgres::Database;
use tokio_postgres::NoTls;

use crate::{PATIENCE, at, claim, connect, database, done, host_port, new, request, worker};

/// Names the pooler for tests, in front of the same cluster.
const URL_VARIABLE: &str = "STARGATE_TEST_PGBOUNCER_URL";

/// The database, through the pooler.
pub(crate) fn pooled(database: &Database) -> String {
    let pooler = std::env::var(URL_VARIABLE).unwrap_or_else(|_| {
        panic!("no PgBouncer for tests: run `cargo xtask test`, or `cargo xtask services` and export what it prints")
    });
    at(database.url(), &host_port(&pooler))
}

async fn through(database: &Database, options: Options) -> Postgres {
    Postgres::connect(&pooled(database), options).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_live_their_lives_through_a_pooler() {
    let database = database().await;
    let store = through(&database, Options::default()).await;
    let other = through(&database, Options::default()).await;
    let (me, you) = (worker(&store).await, worker(&other).await);
    for round in 0..20 {
        let parent = store.enqueue(vec![new("a")]).await.unwrap()[0].id;
        let mut child = new("b");
        child.after = vec![parent];
        child.unique_key = Some(format!("child {round}"));
        let child = other.enqueue(vec![child]).await.unwrap()[0].id;
        // Two at once, so that transactions mix on the pooler's connections.
        let (mine, yours) = tokio::join!(claim(&store, me), claim(&other, you));
        let held: Vec<_> = mine.iter().chain(&yours).collect();
        assert_eq!(held.iter().map(|job| job.fence.job).collect::<Vec<JobId>>(), [parent], "round {round}");
        assert_eq!(store.settle(vec![done(held[0])]).await.unwrap(), [Verdict::Accepted]);
        let (beat, _) = tokio::join!(store.beat(me), other.beat(you));
        assert!(beat.unwrap().known);
        let released = claim(&other, you).await;
        assert_eq!(released.iter().map(|job| job.fence.job).collect::<Vec<_>>(), [child]);
        let outcome = Outcome::Aborted;
        let aborted = Settlement { fence: released[0].fence, outcome };
        assert_eq!(other.settle(vec![aborted]).await.unwrap(), [Verdict::Accepted]);
        let again = claim(&store, me).await;
        assert_eq!(store.settle(again.iter().map(done).collect()).await.unwrap(), [Verdict::Accepted]);
        assert_eq!(store.job(child).await.unwrap().unwrap().state, State::Done);
    }
    drop((store, other));
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_whose_statements_the_pooler_lost_is_run_again() {
    let database = database().await;
    let store = through(&database, Options::default()).await;
    worker(&store).await;
    let parent = store.enqueue(vec![new("a")]).await.unwrap()[0].id;
    let child = || NewJob { after: vec![parent], ..new("b") };
    store.enqueue(vec![child()]).await.unwrap();
    // Takes the server connections on which the statements were prepared, so that the next transaction gets another.
    let taken = (0..4).map(|_| async {
        let (client, driver) = tokio_postgres::connect(&pooled(&database), NoTls).await.unwrap();
        let driver = Tasks::default().spawn(driver);
        client.batch_execute("begin").await.unwrap();
        (client, driver)
    });
    let taken = futures::future::join_all(taken).await;
    store.enqueue(vec![child()]).await.unwrap();
    drop((taken, store));
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_jobs_of_a_silent_worker_are_recovered_through_a_pooler() {
    let database = database().await;
    let store = through(&database, Options::default()).await;
    let (silent, other) = (worker(&store).await, worker(&store).await);
    let id = store.enqueue(vec![new("a")]).await.unwrap()[0].id;
    assert_eq!(claim(&store, silent).await.len(), 1);
    let client = database.client().await;
    client
        .execute(
            "update stargate.worker set beat_at = beat_at - interval '1 hour' where id = $1",
            &[&(silent.0 as i32)],
        )
        .await
        .unwrap();
    let job = eventually(PATIENCE, "the recovery", || async {
        store.claim(request(other)).await.unwrap().jobs.pop().ok_or_else(|| "nothing yet".to_owned())
    })
    .await;
    assert_eq!((job.fence.job, job.fence.attempt), (id, 2));
    assert!(!store.beat(silent).await.unwrap().known, "the silent one has been given up");
    drop((store, client));
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn through_a_pooler_jobs_of_others_are_polled_for_and_heard_of_with_a_direct_line() {
    let database = database().await;
    let deaf = through(&database, Options::default()).await;
    assert_eq!(deaf.facts().wake, WakeMethod::Poll);
    let direct = Options { listen_url: Some(database.url().to_owned()), ..Options::default() };
    let hearing = through(&database, direct).await;
    assert_eq!(hearing.facts().wake, WakeMethod::Notify);

    let mut wakes = hearing.wakes();
    wakes.mark_unchanged();
    let producer = connect(database.url()).await;
    let id = producer.enqueue(vec![new("a")]).await.unwrap()[0].id;
    tokio::time::timeout(PATIENCE, wakes.changed()).await.expect("a wake-up").unwrap();
    // The deaf one finds it when it looks.
    let me = worker(&deaf).await;
    let found = claim(&deaf, me).await;
    assert_eq!(found.iter().map(|job| job.fence.job).collect::<Vec<_>>(), [id]);
    drop((deaf, hearing, producer));
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_behind_a_pooler_starts_what_others_enqueue_by_its_poll() {
    use std::sync::Arc;

    use stargate_queue::context::Context;
    use stargate_queue::handler::{Failure, Registry};
    use stargate_queue::pool::{Pool, PoolConfig};
    use stargate_queue::{Profile, SharedStore};
    use tokio_util::sync::CancellationToken;

    let database = database().await;
    let store: SharedStore = Arc::new(through(&database, Options::default()).await);
    let mut registry = Registry::new();
    registry
        .handle("a", Profile::default(), |_: Context, _: serde_json::Value| async { Ok::<_, Failure>(()) })
        .unwrap();
    let config = PoolConfig { poll: Duration::from_millis(100), ..PoolConfig::default() };
    let pool = Pool::start(store.clone(), registry, config).await.unwrap();
    let stop = CancellationToken::new();
    let mut running = tokio::task::JoinSet::new();
    running.spawn(pool.run(stop.clone()));
    let producer = connect(database.url()).await;
    let id = producer.enqueue(vec![new("a")]).await.unwrap()[0].id;
    eventually(PATIENCE, "the job to be done", || async {
        let job = producer.job(id).await.unwrap().unwrap();
        if job.state == State::Done { Ok(()) } else { Err(format!("{job:?}")) }
    })
    .await;
    stop.cancel();
    running.join_all().await;
    drop((store, producer));
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_writes_through_a_pooler_until_its_term_is_over() {
    let database = database().await;
    let (store, other) =
        (through(&database, Options::default()).await, through(&database, Options::default()).await);
    for epoch in 1..=5 {
        let seen = (epoch > 1).then(|| Epoch::new(epoch - 1));
        assert_eq!(other.term_begin("node", None, seen).await.unwrap(), Epoch::new(epoch));
        let (leader, same) = (store.under(Epoch::new(epoch)), other.under(Epoch::new(epoch)));
        // In transactions, and in single statements on another connection meanwhile.
        for _ in 0..5 {
            let unique = NewJob { unique_key: Some("u".to_owned()), ..new("b") };
            let (one, two, three) = tokio::join!(
                leader.enqueue(vec![new("a")]),
                leader.resume(PauseTarget::Kind("a".into())),
                same.enqueue(vec![unique]),
            );
            assert!(one.is_ok() && two.is_ok() && three.is_ok(), "{one:?} {two:?} {three:?}");
        }
        if let Some(seen) = seen {
            let refused = store.under(seen).enqueue(vec![new("a")]).await;
            assert!(matches!(refused, Err(Error::Deposed { .. })), "{refused:?}");
            let refused = store.under(seen).pause(PauseTarget::Kind("a".into())).await;
            assert!(matches!(refused, Err(Error::Deposed { .. })), "{refused:?}");
        }
    }
    assert_eq!(store.pauses().await.unwrap(), []);
    drop((store, other));
    database.remove().await;
}

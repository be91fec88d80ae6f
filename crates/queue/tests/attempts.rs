//! Attempts that do not count, and delays that a handler sets itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use stargate_base::{Backoff, Tasks};
use stargate_queue::handler::{Failure, Registry};
use stargate_queue::pressure::PressureConfig;
use stargate_queue::{Context, NewJob, Pool, PoolConfig, Profile, SharedStore, State};
use stargate_testkit::eventually;
use tokio_util::sync::CancellationToken;

use crate::stores::on_both_stores;

const PATIENCE: Duration = Duration::from_secs(20);

on_both_stores!(
    an_attempt_that_did_not_begin_does_not_count,
    a_delay_set_by_the_handler_holds_when_it_panics_or_takes_too_long,
);

/// A profile whose own backoff would outlast the test.
fn patient() -> Profile {
    let hour = Duration::from_secs(3600);
    let backoff = Backoff { first: hour, factor: 1.0, cap: hour, jitter: 0.0 };
    Profile { max_attempts: 3, backoff, timeout: Duration::from_millis(300), ..Profile::default() }
}

async fn run(store: &SharedStore, registry: Registry) -> stargate_queue::Job {
    let config = PoolConfig {
        heartbeat: Duration::from_millis(200),
        lease: Duration::from_millis(1500),
        stop_grace: Duration::from_millis(50),
        pressure: PressureConfig { load_threshold: 1e9, ..PressureConfig::default() },
        ..PoolConfig::default()
    };
    let pool = Pool::start(store.clone(), registry, config).await.unwrap();
    let (stop, tasks) = (CancellationToken::new(), Tasks::new());
    tasks.spawn(pool.run(stop.clone()));
    let id = store.enqueue(vec![NewJob::of("try", &json!({})).unwrap()]).await.unwrap()[0].id;
    let job = eventually(PATIENCE, "the job to be done", || async {
        let job = store.job(id).await.unwrap().ok_or("gone")?;
        if job.state == State::Done { Ok(job) } else { Err(format!("{job:?}")) }
    })
    .await;
    stop.cancel();
    tasks.join().await;
    job
}

async fn an_attempt_that_did_not_begin_does_not_count(store: SharedStore) {
    let calls = Arc::new(AtomicUsize::new(0));
    let (mut registry, counter) = (Registry::new(), calls.clone());
    let handler = move |_: Context, _: serde_json::Value| {
        let call = counter.fetch_add(1, Ordering::SeqCst);
        async move { if call < 5 { Err(Failure::not_begun("not yet")) } else { Ok(()) } }
    };
    registry.handle("try", patient(), handler).unwrap();
    let job = run(&store, registry).await;
    assert_eq!(calls.load(Ordering::SeqCst), 6);
    assert_eq!((job.attempt_count, job.error), (1, None));
}

async fn a_delay_set_by_the_handler_holds_when_it_panics_or_takes_too_long(store: SharedStore) {
    let mut registry = Registry::new();
    let handler = async |context: Context, _: serde_json::Value| {
        context.retry_in(Duration::ZERO);
        match context.attempt() {
            1 => panic!("the first attempt"),
            2 => std::future::pending().await,
            _ => Ok::<(), Failure>(()),
        }
    };
    registry.handle("try", patient(), handler).unwrap();
    let job = run(&store, registry).await;
    assert_eq!(job.attempt_count, 3, "{job:?}");
}

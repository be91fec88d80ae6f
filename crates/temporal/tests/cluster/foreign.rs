//! Pages of an activity of somebody else: here a second worker, which knows nothing of ours.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::json;
use stargate_directive::Outcome;
use stargate_temporal::Status;
use stargate_temporal::plan::{Ask, Fetched};
use temporalio_macros::activities;
use temporalio_sdk::activities::{ActivityContext, ActivityError};
use temporalio_sdk::{Runtime, Worker, WorkerOptions};
use tokio::sync::oneshot;

use crate::world::{QUEUE, Reel, World, client, record};

/// Records that there are.
const RECORDS: u64 = 230;

#[derive(Default)]
struct Giver {
    asked: Arc<Mutex<Vec<(serde_json::Value, u32)>>>,
    /// Whether pages of more than 50 records are larger than the cluster takes.
    is_heavy: bool,
    is_stuck: AtomicBool,
}

#[activities]
impl Giver {
    #[activity(name = "somebody.page")]
    async fn page(self: Arc<Self>, _: ActivityContext, ask: Ask) -> Result<Fetched, ActivityError> {
        assert_eq!((ask.tenant.as_str(), &ask.args["list"]), ("acme", &json!("open")));
        self.asked.lock().unwrap().push((ask.pointer.clone(), ask.page_size));
        let first = ask.pointer.as_u64().unwrap_or(0);
        let end = (first + u64::from(ask.page_size)).min(RECORDS);
        let mut records: Vec<_> = (first..end).map(record).collect();
        if self.is_heavy && ask.page_size > 50 {
            records.push(serde_json::value::to_raw_value(&"x".repeat(3_000_000)).unwrap());
        }
        let next = if self.is_stuck.load(Ordering::Relaxed) { json!(first) } else { json!(end) };
        Ok(Fetched { records, next: Some(next), is_last: end == RECORDS })
    }
}

/// Ends the other worker with the test.
struct Elsewhere {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = self.stop.take().map(|stop| stop.send(()));
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

async fn elsewhere(world: &World, giver: Giver) -> Elsewhere {
    let client = client(&world.namespace, "giver").await;
    let runtime = Runtime::from_current_tokio(Default::default()).unwrap();
    let options = WorkerOptions::new(QUEUE).register_activities(giver).build();
    let mut worker = Worker::new(&runtime, client, options).unwrap();
    let (stop, stopped) = oneshot::channel();
    let shutdown = worker.shutdown_handle();
    let handle = tokio::runtime::Handle::current();
    let thread = std::thread::spawn(move || {
        handle.block_on(async {
            let (ran, ()) = tokio::join!(worker.run(), async {
                let _ = stopped.await;
                shutdown();
            });
            ran.unwrap();
        });
        drop(runtime);
    });
    Elsewhere { stop: Some(stop), thread: Some(thread) }
}

const SOURCE: &str = r#"
    type = "activity"
    activity = "somebody.page"
    task_queue = "meta-py"
    args = { list = "open" }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_another_worker_are_written_as_those_of_any_source() {
    let world = World::with_source(Reel::new(1, 1), SOURCE).await;
    let serving = world.serve("one", World::options()).await;
    let giver = Giver::default();
    let asked = giver.asked.clone();
    let _elsewhere = elsewhere(&world, giver).await;
    let run = world.start().await;
    let summary = world.completed(&run).await.summary.unwrap();
    assert_eq!((summary.pages, summary.counts.created, world.rows()), (3, RECORDS, RECORDS));
    let pointers: Vec<_> = asked.lock().unwrap().iter().map(|(pointer, _)| pointer.clone()).collect();
    assert_eq!(pointers, [json!(null), json!(100), json!(200)]);
    world.record("activity").await;
    serving.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_is_too_large_is_asked_for_with_half_as_many_records() {
    let world = World::with_source(Reel::new(1, 1), SOURCE).await;
    let serving = world.serve("one", World::options()).await;
    let giver = Giver { is_heavy: true, ..Giver::default() };
    let asked = giver.asked.clone();
    let _elsewhere = elsewhere(&world, giver).await;
    let run = world.start().await;
    let summary = world.completed(&run).await.summary.unwrap();
    assert_eq!((summary.pages, world.rows()), (5, RECORDS));
    let asked = asked.lock().unwrap().clone();
    assert_eq!(asked[..3], [(json!(null), 100), (json!(null), 50), (json!(50), 50)]);
    world.record("activity-large").await;
    serving.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_leads_to_itself_fails_the_run() {
    let world = World::with_source(Reel::new(1, 1), SOURCE).await;
    let serving = world.serve("one", World::options()).await;
    let giver = Giver { is_stuck: AtomicBool::new(true), ..Giver::default() };
    let _elsewhere = elsewhere(&world, giver).await;
    let run = world.start().await;
    let closed = world.closed(&run).await;
    // The first page leads from null to 0, the second from 0 to itself.
    assert_eq!((closed.status, closed.code.as_deref()), (Status::Failed, Some("SOURCE_LOOP")));
    let kept = world.run(&run).await.unwrap();
    assert_eq!(kept.outcome, Some(Outcome::Failed));
    assert!(kept.error.as_deref().is_some_and(|error| error.contains("SOURCE_LOOP")), "{kept:?}");
    serving.stop().await;
}

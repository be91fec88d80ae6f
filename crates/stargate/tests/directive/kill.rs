//! Workers that are killed: at every step, between pages, anywhere.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::RngExt as _;
use stargate_testkit::eventually;
use stargate_testkit::process::Running;
use stargate_testkit::source_server::{Fault, SourceServer};
use tokio::sync::watch;

use crate::stage::{Kind, PATIENCE, Place, Stage, Wishes, total};
use crate::steps::{field, records};

/// For the long form: kills per store.
const KILLS: &str = "STARGATE_TEST_DIRECTIVE_KILLS";
/// On Temporal a dead worker is missed after three heartbeats.
const SOON_MISSED: &str = "heartbeat = \"1s\"";
const SOON_MISSED_SMALL: &str = "heartbeat = \"1s\"\npage_size = 50";
/// That of the directive whose workers are killed anywhere.
const PAGE_SIZE: u64 = 50;

/// Rows are those of the source, each announced once, and the counts add up to what there is.
async fn assert_exactly_once(stage: &Stage, items: u64) {
    stage.assert_equal_to_the_source().await;
    let outbox = stage.own("directive_outbox");
    let announced =
        stage.query(&format!("select key, count(*) from {outbox} group by key having count(*) > 1")).await;
    assert!(announced.is_empty(), "announced twice: {announced:?}");
    assert_eq!(stage.number(&format!("select count(*) from {outbox}")).await, items);
    assert_eq!(stage.number("select count(*) from items where version <> 1").await, 0);
    let run = stage.last_run().unwrap();
    assert_eq!((run["created"].as_u64(), total(&run)), (Some(items), items), "{run}");
    let cursor = &run["cursor"];
    assert_eq!(
        (&cursor["source_pointer"], cursor["processed_count"].as_u64()),
        (&serde_json::Value::Null, Some(items))
    );
    let show = stage.json(&["cursor", "show", "issues"]);
    assert_eq!(show["cursor"]["value"], *cursor);
    assert_eq!(show["partial"], serde_json::Value::Null);
}

async fn died(worker: &mut Running) {
    eventually(PATIENCE, "the worker to die", || {
        let answer = if worker.is_running() { Err("lives".to_owned()) } else { Ok(()) };
        async { answer }
    })
    .await;
}

pub(crate) async fn at_every_step(place: Place) {
    let wishes = Wishes { top: SOON_MISSED, ..Wishes::default() };
    let stage = Stage::wishing(place, SourceServer::start(700), &wishes).await;
    stage.begin();
    for at in [
        "AcquireContext",
        "ResolveCursor",
        "FetchSourceData",
        "FetchSourceData:2",
        "Transform",
        "Transform:2",
        "Persist",
        "Persist:2",
        "AdvanceCursor",
        "AdvanceCursor:2",
        "Finalize",
    ] {
        let mut worker = stage.program.start_with(&["worker"], &[("STARGATE_TEST_DIE_AT_STEP", at)]);
        died(&mut worker).await;
    }
    let mut worker = stage.worker();
    worker.ready().await;
    stage.run_is(|run| run["outcome"] == "succeeded").await;
    assert_exactly_once(&stage, 700).await;
    stage.remove().await;
}

#[tokio::test]
async fn a_worker_killed_after_each_page_fetches_no_page_twice() {
    let wishes = Wishes { top: "concurrency = 1", ..Wishes::default() };
    let stage = Stage::wishing(Kind::Sqlite, SourceServer::start(500), &wishes).await;
    stage.enqueue();
    for page in 1..=5 {
        let mut worker =
            stage.program.start_with(&["worker"], &[("STARGATE_TEST_DIE_AT_STEP", "AdvanceCursor")]);
        died(&mut worker).await;
        assert_eq!(stage.last_run().unwrap()["pages"], page);
    }
    let before = stage.server.request_count();
    let mut worker = stage.worker();
    worker.ready().await;
    stage.run_is(|run| run["outcome"] == "succeeded").await;
    assert_eq!(stage.server.request_count(), before, "the source had ended");
    assert_exactly_once(&stage, 500).await;
    stage.remove().await;
}

/// A source that gives each worker only so many pages, so that a run outlives its workers.
struct Rationed {
    /// The number of the last request that gets its page.
    last: Arc<AtomicU64>,
    /// The number of the newest request.
    asked: watch::Receiver<u64>,
}

impl Rationed {
    fn of(server: &SourceServer) -> Self {
        let (last, (told, asked)) = (Arc::new(AtomicU64::new(0)), watch::channel(0));
        let limit = Arc::clone(&last);
        server.script(move |request| {
            told.send_replace(request.number);
            let page = Fault::Delay(Duration::from_millis(5));
            Some(if request.number <= limit.load(Ordering::SeqCst) { page } else { Fault::Hang })
        });
        Self { last, asked }
    }

    /// Waits for the request of this number, and is back at once: the kill is to come while its page is dealt with.
    async fn request(&mut self, number: u64) {
        let asked = self.asked.wait_for(|asked| *asked >= number);
        tokio::time::timeout(PATIENCE, asked).await.expect("a few more requests").expect("the source");
    }
}

/// The last step that a worker told of.
fn last_step(log: &str) -> Option<String> {
    let mut steps = records(log).into_iter().map(|record| field(&record, "step").to_owned());
    steps.rfind(|step| !step.is_empty())
}

/// Kills at moments that nobody chose, each of which hits a run that is under way.
pub(crate) async fn anywhere(place: Place) {
    let long: Option<u64> = std::env::var(KILLS).ok().map(|kills| kills.parse().expect(KILLS));
    let (kills, items) = long.map_or((6, 3000), |kills| (kills, 20_000));
    let pages = items / PAGE_SIZE;
    let server = SourceServer::start(items);
    let mut source = Rationed::of(&server);
    let stage = Stage::wishing(place, server, &Wishes { top: SOON_MISSED_SMALL, ..Wishes::default() }).await;
    stage.begin();
    let (mut hit, mut at, mut done) = (0, BTreeMap::new(), 0);
    for kill in 0..kills {
        // One page at least, and as many as leave one for each of the others and for the end.
        let spare = (pages - done).checked_sub(kills - kill + 1).expect("pages for every kill");
        let ration = 1 + rand::rng().random_range(0..=spare.min(pages / kills));
        let before = stage.server.request_count();
        source.last.store(before + ration, Ordering::SeqCst);
        let mut worker = stage.worker();
        source.request(before + rand::rng().random_range(1..=ration)).await;
        eventually(PATIENCE, "a step", async || last_step(&worker.log()).ok_or(worker.log())).await;
        std::thread::sleep(Duration::from_micros(rand::rng().random_range(0..30_000)));
        worker.kill();
        let step = last_step(&worker.log()).expect("a step");
        let run = stage.last_run().expect("a run");
        done = run["pages"].as_u64().expect("pages");
        hit += u64::from(run["outcome"].is_null() && step != "Finalize");
        *at.entry(step).or_insert(0) += 1;
    }
    assert_eq!(hit, kills, "kills that hit a run under way");
    source.last.store(u64::MAX, Ordering::SeqCst);
    let mut worker = stage.worker();
    worker.ready().await;
    stage.run_is(|run| run["outcome"] == "succeeded").await;
    let requests = stage.server.request_count();
    println!("{place:?}: {hit} kills over {items} items, {requests} requests; the last step told of: {at:?}");
    assert_exactly_once(&stage, items).await;
    stage.remove().await;
}

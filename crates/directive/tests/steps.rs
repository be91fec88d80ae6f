//! The steps against a real store and a source that says exactly what the test wants.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use stargate_base::{ErrorClass, Tasks};
use stargate_directive::file::{self, Directive};
use stargate_directive::kv::Keys;
use stargate_directive::source::{Feed, ForeignSink, Page, Records, SourceError, Sources};
use stargate_directive::steps::{self, Assignment, Ended, Progress, Watch};
use stargate_directive::{Counts, NewRun, Outcome, Pointer, Run, RunId, SharedDirectives, Step};
use stargate_store::sqlite::{Options, Sqlite};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// A page of the tape.
#[derive(Debug, Clone)]
struct Leaf {
    ids: Vec<u64>,
    /// Where to go on: the number of a page.
    next: Option<u64>,
    trouble: Option<&'static str>,
}

fn leaf(ids: Range<u64>, next: Option<u64>) -> Leaf {
    Leaf { ids: ids.collect(), next, trouble: None }
}

/// A source whose pages are written down. Its pointer is the number of a page.
#[derive(Debug, Default)]
struct Tape {
    leaves: Mutex<Vec<Leaf>>,
    title: Mutex<&'static str>,
    opened: Mutex<Vec<Pointer>>,
}

/// The tape as a source.
#[derive(Debug)]
struct Player(Arc<Tape>);

#[async_trait]
impl Sources for Player {
    async fn open(&self, _: &Directive, from: &Pointer) -> Result<Box<dyn Feed>, SourceError> {
        self.0.opened.lock().unwrap().push(from.clone());
        Ok(Box::new(Reader { tape: Arc::clone(&self.0), at: from.as_u64().unwrap_or(0) as usize }))
    }

    async fn sink(&self, _: &Directive) -> Result<Option<Box<dyn ForeignSink>>, SourceError> {
        Ok(None)
    }
}

#[derive(Debug)]
struct Reader {
    tape: Arc<Tape>,
    at: usize,
}

#[async_trait]
impl Feed for Reader {
    async fn page(&mut self, _: u32) -> Result<Page, SourceError> {
        let (leaf, count) = {
            let leaves = self.tape.leaves.lock().unwrap();
            (leaves[self.at].clone(), leaves.len())
        };
        match leaf.trouble {
            Some("restart") => {
                let mut error = SourceError::new(ErrorClass::RetryableTransient, "SOURCE_SHIFTED", "moved");
                error.restart = true;
                return Err(error);
            }
            Some(message) => {
                return Err(SourceError::new(ErrorClass::RetryableTransient, "SOURCE_STATUS", message));
            }
            None => {}
        }
        let title = *self.tape.title.lock().unwrap();
        let record = |id: &u64| {
            let text = json!({ "id": id, "title": format!("{title} {id}") }).to_string();
            Ok(RawValue::from_string(text).unwrap())
        };
        self.at += 1;
        let records = Records::memory(leaf.ids.iter().map(record).collect());
        Ok(Page { records, next: leaf.next.map(Value::from), is_last: self.at == count })
    }

    async fn close(self: Box<Self>) {}
}

struct World {
    store: SharedDirectives,
    tape: Arc<Tape>,
    directive: Directive,
    folder: TempDir,
}

impl World {
    async fn new(leaves: Vec<Leaf>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Sqlite::open(&folder.path().join("stargate.db"), Options::default()).await.unwrap();
        let tape = Tape { leaves: Mutex::new(leaves), title: Mutex::new("item"), ..Tape::default() };
        let text = r#"
            name = "issues"
            queue = "meta-py"
            tenant = "acme"
            project = "core"
            [source]
            type = "file"
            path = "none.jsonl"
            [item]
            key = ["/id"]
            [sink]
            table = "items"
            outbox = "items.changed"
        "#;
        let directive = file::parse(Path::new("issues.toml"), text, &["meta-py".to_owned()]).unwrap();
        Self { store: Arc::new(store), tape: Arc::new(tape), directive, folder }
    }

    fn assignment(&self, run: &str) -> Assignment {
        Assignment {
            mapping: Arc::new(self.directive.mapping().unwrap()),
            directive: Arc::new(self.directive.clone()),
            store: Arc::clone(&self.store),
            sources: Arc::new(Player(Arc::clone(&self.tape))),
            run: RunId(run.to_owned()),
            workflow_id: "directive:issues".to_owned(),
            engine: "embedded",
            worker: "here".to_owned(),
            attempt: 1,
            tasks: Tasks::new(),
            watch: None,
            is_last_try: false,
            pages_max: None,
            page_size: None,
            progress: None,
        }
    }

    async fn execute(&self, run: &str) -> Ended {
        steps::execute(self.assignment(run), &CancellationToken::new(), &|| false).await
    }

    async fn run(&self, run: &str) -> Run {
        self.store.run(&RunId(run.to_owned())).await.unwrap().unwrap()
    }

    async fn value(&self, of: impl Fn(&Keys) -> stargate_directive::Key) -> Option<Value> {
        let keys = Keys::of("acme", "core", "issues").unwrap();
        let entry = self.store.kv_get(&of(&keys)).await.unwrap()?;
        Some(serde_json::from_str(entry.value.get()).unwrap())
    }

    async fn cursor(&self) -> Option<Value> {
        self.value(|keys| keys.cursor.clone()).await
    }

    async fn partial(&self) -> Option<Value> {
        self.value(|keys| keys.partial.clone()).await
    }

    fn rows(&self) -> i64 {
        let connection = rusqlite::Connection::open(self.folder.path().join("stargate.db")).unwrap();
        connection.query_row("select count(*) from items", [], |row| row.get(0)).unwrap()
    }

    fn mend(&self, at: usize) {
        self.tape.leaves.lock().unwrap()[at].trouble = None;
    }

    fn opened(&self) -> Vec<Pointer> {
        self.tape.opened.lock().unwrap().clone()
    }
}

fn broken(mut leaf: Leaf, trouble: &'static str) -> Leaf {
    leaf.trouble = Some(trouble);
    leaf
}

fn counts(created: u64, updated: u64, unchanged: u64) -> Counts {
    Counts { created, updated, unchanged, failed: 0 }
}

fn waits(ended: &Ended, code: &str) -> bool {
    matches!(ended, Ended::Wait { trouble, .. } if trouble.code == code)
}

fn succeeded(ended: &Ended) -> bool {
    matches!(ended, Ended::Finished(run) if run.outcome == Some(Outcome::Succeeded))
}

/// A source that says where to go on only after its third page, and fails there at first.
fn seldom_marked() -> Vec<Leaf> {
    vec![
        leaf(0..100, None),
        leaf(100..200, None),
        broken(leaf(200..300, Some(3)), "busy"),
        leaf(300..400, None),
    ]
}

#[tokio::test]
async fn records_before_the_source_says_where_to_go_on_are_read_again_and_counted_once() {
    let world = World::new(seldom_marked()).await;
    assert!(waits(&world.execute("1").await, "SOURCE_STATUS"));
    assert_eq!(
        (world.cursor().await, world.partial().await),
        (None, Some(json!({ "accounted": 200, "run": "1", "cursor_version": 0 })))
    );
    assert_eq!(world.run("1").await.counts, counts(200, 0, 0));
    world.mend(2);
    assert!(succeeded(&world.execute("1").await));
    let run = world.run("1").await;
    assert_eq!((run.counts, world.rows()), (counts(400, 0, 0), 400));
    assert_eq!(run.cursor.unwrap().processed_count, 400);
    assert_eq!(world.partial().await, None);
    assert_eq!(world.opened(), [Value::Null, Value::Null]);
}

#[tokio::test]
async fn records_that_changed_before_they_are_read_again_are_written_again() {
    let world = World::new(seldom_marked()).await;
    world.execute("1").await;
    world.mend(2);
    *world.tape.title.lock().unwrap() = "other";
    assert!(succeeded(&world.execute("1").await));
    assert_eq!(world.run("1").await.counts, counts(400, 200, 0));
}

#[tokio::test]
async fn fewer_records_than_were_accounted_for_end_well() {
    let world = World::new(seldom_marked()).await;
    world.execute("1").await;
    *world.tape.leaves.lock().unwrap() = vec![leaf(0..50, Some(1)), leaf(50..60, None)];
    assert!(succeeded(&world.execute("1").await));
    assert_eq!(world.run("1").await.cursor.unwrap().processed_count, 60);
    assert_eq!(world.partial().await, None);
}

#[tokio::test]
async fn a_key_that_a_page_repeats_is_written_as_often_as_it_changes() {
    let mut page = leaf(0..3, None);
    page.ids = vec![1, 2, 1, 1, 3];
    let world = World::new(vec![page]).await;
    assert!(succeeded(&world.execute("1").await));
    let run = world.run("1").await;
    assert_eq!((run.counts, run.pages, world.rows()), (counts(3, 0, 2), 1, 3));
    assert_eq!(run.cursor.unwrap().processed_count, 5);
}

#[tokio::test]
async fn a_source_that_does_not_hold_together_is_read_from_its_beginning() {
    let leaves = vec![leaf(0..10, Some(1)), leaf(10..20, Some(2)), broken(leaf(20..30, None), "restart")];
    let world = World::new(leaves).await;
    assert!(waits(&world.execute("1").await, "SOURCE_SHIFTED"));
    assert_eq!(world.cursor().await.unwrap()["source_pointer"], Value::Null);
    world.mend(2);
    assert!(succeeded(&world.execute("1").await));
    let run = world.run("1").await;
    assert_eq!((run.counts, run.cursor.unwrap().processed_count), (counts(30, 0, 20), 30));
    assert_eq!(world.opened(), [Value::Null, Value::Null]);
}

#[tokio::test]
async fn a_full_run_begins_anew_and_an_incremental_one_goes_on() {
    let mut world =
        World::new(vec![leaf(0..10, Some(1)), leaf(10..20, Some(2)), leaf(20..20, Some(2))]).await;
    assert!(succeeded(&world.execute("1").await));
    world.directive.mode = file::Mode::Incremental;
    assert!(succeeded(&world.execute("2").await));
    world.tape.leaves.lock().unwrap()[2] = leaf(20..25, Some(3));
    assert!(succeeded(&world.execute("3").await));
    assert_eq!(world.run("2").await.counts, counts(0, 0, 20));
    assert_eq!(world.run("3").await.counts, counts(5, 0, 0));
    assert_eq!(world.opened(), [Value::Null, Value::Null, json!(2)]);
    assert_eq!(world.cursor().await.unwrap()["processed_count"], 25);
}

#[tokio::test]
async fn the_same_data_gives_the_same_checksum_however_it_is_paged() {
    let one = World::new(vec![leaf(0..30, None)]).await;
    let three = World::new(vec![leaf(0..7, Some(1)), leaf(7..20, None), leaf(20..30, None)]).await;
    one.execute("1").await;
    three.execute("1").await;
    let sum = |cursor: Option<Value>| cursor.unwrap()["checksum"].as_str().unwrap().to_owned();
    assert_eq!(sum(one.cursor().await), sum(three.cursor().await));
}

#[tokio::test]
async fn what_would_wait_fails_at_the_last_try() {
    let world = World::new(vec![broken(leaf(0..1, None), "busy")]).await;
    let last = Assignment { is_last_try: true, ..world.assignment("1") };
    let ended = steps::execute(last, &CancellationToken::new(), &|| false).await;
    assert!(matches!(&ended, Ended::Failed(trouble) if trouble.code == "RETRIES_EXHAUSTED"), "{ended:?}");
    assert_eq!(world.run("1").await.outcome, Some(Outcome::Failed));
}

#[tokio::test]
async fn a_run_does_not_outlive_its_deadline() {
    let mut world = World::new(vec![leaf(0..1, Some(1)), leaf(1..2, None)]).await;
    world.directive.deadline = Some(Duration::from_nanos(1));
    let ended = world.execute("1").await;
    assert!(matches!(&ended, Ended::Failed(trouble) if trouble.code == "DEADLINE_EXCEEDED"), "{ended:?}");
}

/// Takes the lease away when a step is reached.
#[derive(Debug)]
struct Thief {
    store: SharedDirectives,
    at: Step,
    handle: tokio::runtime::Handle,
}

impl Watch for Thief {
    fn reached(&self, step: Step) {
        if step != self.at {
            return;
        }
        let (store, keys) = (Arc::clone(&self.store), Keys::of("acme", "core", "issues").unwrap());
        let again = NewRun {
            id: RunId("1".to_owned()),
            directive: "issues".to_owned(),
            tenant: "acme".to_owned(),
            project: "core".to_owned(),
            engine: "embedded".to_owned(),
            workflow_id: "directive:issues".to_owned(),
            worker: "elsewhere".to_owned(),
            lease: keys.run,
            lease_for: Duration::from_secs(90),
        };
        tokio::task::block_in_place(|| self.handle.block_on(store.run_begin(again))).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_execution_that_was_replaced_writes_nothing_more() {
    let world = World::new(vec![leaf(0..10, Some(1)), leaf(10..20, None)]).await;
    let thief =
        Thief { store: world.store.clone(), at: Step::Persist, handle: tokio::runtime::Handle::current() };
    let robbed = Assignment { watch: Some(Arc::new(thief)), ..world.assignment("1") };
    let ended = steps::execute(robbed, &CancellationToken::new(), &|| false).await;
    assert!(waits(&ended, "RUN_HELD"), "{ended:?}");
    assert_eq!((world.cursor().await, world.run("1").await.counts), (None, counts(0, 0, 0)));
    // Whoever replaced it, or comes after, has everything to do.
    assert!(succeeded(&world.execute("1").await));
    assert_eq!(world.run("1").await.counts, counts(20, 0, 0));
}

/// Asks the run to stop when a step is reached.
#[derive(Debug)]
struct Canceller(SharedDirectives, tokio::runtime::Handle);

impl Watch for Canceller {
    fn reached(&self, step: Step) {
        if step == Step::Persist {
            let (store, run) = (Arc::clone(&self.0), RunId("1".to_owned()));
            tokio::task::block_in_place(|| self.1.block_on(store.run_cancel(&run))).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_asked_to_stop_while_it_writes_ends_after_that_page() {
    let leaves = (0..50).map(|n| leaf(n * 10..n * 10 + 10, Some(n + 1))).collect();
    let world = World::new(leaves).await;
    let watch = Canceller(world.store.clone(), tokio::runtime::Handle::current());
    let asked = Assignment { watch: Some(Arc::new(watch)), ..world.assignment("1") };
    let ended = steps::execute(asked, &CancellationToken::new(), &|| false).await;
    assert!(matches!(&ended, Ended::Finished(run) if run.outcome == Some(Outcome::Cancelled)), "{ended:?}");
    let run = world.run("1").await;
    assert_eq!(run.counts.created, 10 * run.pages);
    assert_eq!(run.cursor.unwrap().processed_count, run.counts.created);
    assert!(run.pages < 50);
}

#[tokio::test]
async fn a_page_that_ends_where_the_records_before_it_ended_is_not_lost() {
    let world = World::new(seldom_marked()).await;
    world.execute("1").await;
    // The source has come to mark its second page, which ends where the run had come to.
    *world.tape.leaves.lock().unwrap() = vec![leaf(0..100, None), leaf(100..200, None)];
    assert!(succeeded(&world.execute("1").await));
    let run = world.run("1").await;
    assert_eq!((run.counts, run.source_ended), (counts(200, 0, 0), true));
    assert_eq!(run.cursor.unwrap().processed_count, 200);
}

#[tokio::test]
async fn pages_that_end_before_what_was_accounted_for_are_counted_once() {
    let world = World::new(seldom_marked()).await;
    world.execute("1").await;
    *world.tape.leaves.lock().unwrap() =
        vec![leaf(0..150, Some(1)), leaf(150..250, Some(2)), leaf(250..260, None)];
    assert!(succeeded(&world.execute("1").await));
    let run = world.run("1").await;
    assert_eq!((run.counts, run.cursor.unwrap().processed_count), (counts(260, 0, 0), 260));
}

#[tokio::test]
async fn another_run_counts_what_the_one_before_had_not_finished() {
    let world = World::new(seldom_marked()).await;
    let last = Assignment { is_last_try: true, ..world.assignment("1") };
    steps::execute(last, &CancellationToken::new(), &|| false).await;
    world.mend(2);
    assert!(succeeded(&world.execute("2").await));
    assert_eq!(world.run("2").await.counts, counts(200, 0, 200));
}

#[tokio::test]
async fn a_run_that_ended_is_answered_as_it_ended() {
    let world = World::new(vec![leaf(0..10, None)]).await;
    assert!(succeeded(&world.execute("1").await));
    assert!(succeeded(&world.execute("1").await), "its engine had not heard");
    assert_eq!(world.opened().len(), 1);
}

#[tokio::test]
async fn a_source_that_never_holds_together_is_asked_less_and_less() {
    let leaves = vec![leaf(0..10, Some(1)), broken(leaf(10..20, None), "restart")];
    let world = World::new(leaves).await;
    let mut delays = Vec::new();
    for _ in 0..3 {
        match world.execute("1").await {
            Ended::Wait { after, .. } => delays.push(after.as_secs()),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(delays, [30, 60, 120]);
}

#[tokio::test]
async fn pages_that_are_ready_are_written_together_if_many_may_be_in_hand() {
    let leaves: Vec<Leaf> = (0..40).map(|n| leaf(n * 10..n * 10 + 10, Some(n + 1))).collect();
    let mut world = World::new(leaves.clone()).await;
    world.directive.concurrency = 8;
    assert!(succeeded(&world.execute("1").await));
    let run = world.run("1").await;
    assert_eq!((run.counts, run.pages, run.cursor.unwrap().processed_count), (counts(400, 0, 0), 40, 400));
    // An entity that comes again is written after the page in which it was.
    for leaf in world.tape.leaves.lock().unwrap().iter_mut() {
        leaf.ids = (1000..1010).collect();
    }
    assert!(succeeded(&world.execute("2").await));
    let run = world.run("2").await;
    assert_eq!((run.counts, run.pages), (counts(10, 0, 390), 40));
}

#[tokio::test]
async fn an_execution_of_a_few_pages_leaves_the_rest_to_the_next() {
    let leaves = (0..5).map(|n| leaf(n * 100..(n + 1) * 100, Some(n + 1))).collect();
    let world = World::new(leaves).await;
    let bounded = |pages| Assignment { pages_max: Some(pages), ..world.assignment("1") };
    let execute = async |given| steps::execute(given, &CancellationToken::new(), &|| false).await;

    let Ended::More(at) = execute(bounded(0)).await else { panic!("it only looks") };
    assert_eq!((at.pages, &at.pointer, at.page_size), (0, &Value::Null, 100));
    assert!(world.opened().is_empty());

    let (listener, heard) = tokio::sync::watch::channel(Progress::default());
    let given = Assignment { progress: Some(listener), page_size: Some(60), ..bounded(2) };
    let Ended::More(at) = execute(given).await else { panic!("three pages are left") };
    assert_eq!((at.pages, at.counts, at.page_size), (2, counts(200, 0, 0), 60));
    assert_eq!((&at.pointer, at.cursor_version), (&Value::from(2), 2));
    assert_eq!(*heard.borrow(), *at);
    assert_eq!(world.run("1").await.outcome, None);

    let other = world.execute("2").await;
    assert!(waits(&other, "RUN_HELD"), "{other:?}");
    assert!(matches!(execute(bounded(2)).await, Ended::More(at) if at.pages == 4));
    assert!(succeeded(&execute(bounded(2)).await));
    assert_eq!(world.opened(), [Value::Null, 2.into(), 4.into()]);
    let run = world.run("1").await;
    assert_eq!((run.pages, run.counts, world.rows()), (5, counts(500, 0, 0), 500));
}

#[tokio::test]
async fn a_run_that_is_cancelled_between_two_executions_ends_there() {
    let leaves = (0..3).map(|n| leaf(n * 100..(n + 1) * 100, Some(n + 1))).collect();
    let world = World::new(leaves).await;
    let bounded = || Assignment { pages_max: Some(1), ..world.assignment("1") };
    let execute = async |given| steps::execute(given, &CancellationToken::new(), &|| false).await;
    assert!(matches!(execute(bounded()).await, Ended::More(_)));
    assert!(world.store.run_cancel(&RunId("1".to_owned())).await.unwrap());
    let ended = execute(bounded()).await;
    assert!(matches!(&ended, Ended::Finished(run) if run.outcome == Some(Outcome::Cancelled)), "{ended:?}");
    assert_eq!((world.rows(), world.cursor().await.unwrap()["source_pointer"].as_u64()), (100, Some(1)));
}

//! Remotes that are away, silent, or slower than we wait for.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use stargate_base::Backoff;
use stargate_git::{Git, Protocols};
use stargate_mirror::dead_letter::Reason;
use stargate_mirror::permit::Always;
use stargate_mirror::status::Status;
use stargate_mirror::{Config, Round, Step, Steps, Worker};
use stargate_testkit::git::{Server, Unreached, executable, processes_with};
use tokio_util::sync::CancellationToken;

use crate::fixture::{MAIN, PATIENCE, WATERMARK, World, eventually, gits, is_long};

const QUICK: Backoff =
    Backoff { first: Duration::from_millis(50), factor: 2.0, cap: Duration::from_millis(400), jitter: 0.0 };

/// The remote goes away.
#[expect(clippy::disallowed_methods, reason = "a test moves a directory about")]
fn hide(w: &World) -> PathBuf {
    let away = w.dir.path().join("away.git");
    std::fs::rename(w.remote.path(), &away).unwrap();
    away
}

/// It comes back.
#[expect(clippy::disallowed_methods, reason = "a test moves a directory about")]
fn show(w: &World, away: &PathBuf) {
    std::fs::rename(away, w.remote.path()).unwrap();
}

#[tokio::test]
async fn an_outage_leaves_one_dead_letter_and_none_after_it_even_if_the_worker_restarts_in_it() {
    for git in gits() {
        let mut w = World::new(&git).await;
        w.config.probes = QUICK;
        w.config.push_backoff = QUICK;
        let chain = w.chain(40);
        let first = w.push(MAIN, None, &chain[0]);
        w.drain_all().await;
        let away = hide(&w);
        let mut ids = Vec::new();
        for restart in 0..4 {
            let stop = CancellationToken::new();
            let mut worker = w.worker();
            let produce = async {
                for n in (restart * 10).max(1)..(restart + 1) * 10 {
                    ids.push(w.push(MAIN, Some(&chain[n - 1]), &chain[n]));
                    tokio::time::sleep(Duration::from_millis(30)).await;
                }
                eventually("the breaker is open", || {
                    let report = stargate_mirror::Report::of(w.repo.path()).unwrap();
                    report.worker.is_some_and(|state| state.breaker != "closed")
                })
                .await;
                assert!(w.letters().len() <= 1, "{:?}", w.letters());
                if restart == 3 {
                    show(&w, &away);
                    let back = Instant::now();
                    eventually("it is drained", || w.records().len() >= 41).await;
                    println!("drained {:?} after the end of the outage", back.elapsed());
                }
                stop.cancel();
            };
            let (ended, ()) = tokio::join!(worker.run(stop.clone()), produce);
            assert_eq!(ended.unwrap(), Round::Stopped);
        }
        w.assert_mirrored(&chain[39]);
        assert_eq!((w.letters().len(), w.open_letters()), (1, 0), "requeued by itself");
        assert_eq!(w.letters()[0].letter.reason, Reason::Outage);
        assert_eq!(w.status(&first).0, Status::Completed);
        let dead: Vec<&String> = ids.iter().filter(|id| w.status(id).0 == Status::DeadLetter).collect();
        assert_eq!(dead.len(), 1);
        // 40 entries and the requeued one.
        assert_eq!(w.records().len(), 41);
        assert_eq!(w.records().iter().filter(|record| record.status == Status::Superseded).count(), 1);
    }
}

#[tokio::test]
async fn a_remote_that_does_not_let_us_in_is_waited_for_too() {
    for git in gits() {
        let mut w = World::new(&git).await;
        w.config.push_backoff = QUICK;
        w.git = git.with_protocols(Protocols::parse("http,file").unwrap());
        let server = Server::start(Some("403 Forbidden"));
        w.set_url(&server.url);
        let chain = w.chain(3);
        for n in 0..3_usize {
            w.push(MAIN, n.checked_sub(1).map(|n| &chain[n]), &chain[n]);
        }
        let drained = w.drain().await;
        assert!(matches!(drained.end, Round::Waiting(_)), "{drained:?}");
        assert_eq!(drained.left, 2);
        assert_eq!((w.letters().len(), w.letters()[0].letter.reason), (1, Reason::Auth));
        let report = stargate_mirror::Report::of(w.repo.path()).unwrap();
        assert_eq!((report.backlog, report.caught_up_in_seconds), (2, None));
        w.set_url(w.remote.path().to_str().unwrap());
        w.drain_all().await;
        w.assert_mirrored(&chain[2]);
        assert_eq!(w.open_letters(), 0);
    }
}

/// Has entries come while the remote is away, one after the other, and looks what becomes of them.
async fn entries_keep_coming(git: &Git, count: usize, pace: Duration, probes: Backoff, coalesce: bool) {
    let mut w = World::new(git).await;
    w.config = Config { probes, coalesce, ..w.config };
    let chain = w.chain(count);
    w.push(MAIN, None, &chain[0]);
    w.drain_all().await;
    let away = hide(&w);
    let (mut worker, stop) = (w.worker(), CancellationToken::new());
    let produce = async {
        let mut ticks = tokio::time::interval(pace);
        for n in 1..count {
            ticks.tick().await;
            w.push(MAIN, Some(&chain[n - 1]), &chain[n]);
        }
        // The others wait.
        eventually("one was given up", || (w.letters().len(), w.records().len()) == (1, 2)).await;
        show(&w, &away);
        let back = Instant::now();
        eventually("the remote is found", || w.records().len() > 2).await;
        let found = back.elapsed();
        // All of them, and the one that was given up once more.
        eventually("it is drained", || w.records().len() == count + 1).await;
        let drained = back.elapsed() - found;
        println!(
            "{count} entries, one each {pace:?}, coalesced: {coalesce}: 1 dead letter; found {found:?} after the end of the \
             outage, drained {drained:?} later"
        );
        stop.cancel();
    };
    let (ended, ()) = tokio::join!(worker.run(stop.clone()), produce);
    assert_eq!(ended.unwrap(), Round::Stopped);
    w.assert_mirrored(&chain[count - 1]);
    assert_eq!((w.letters().len(), w.open_letters()), (1, 0), "none is left");
}

/// T8. The long form is ten minutes with an entry a second; otherwise everything is as much faster.
#[tokio::test]
async fn entries_that_keep_coming_in_an_outage_cost_one_dead_letter_and_none_when_it_is_over() {
    let (count, pace, probes) = if is_long() {
        (600, Duration::from_secs(1), stargate_mirror::breaker::PROBES)
    } else {
        (40, Duration::from_millis(20), QUICK)
    };
    for git in gits() {
        let run = async |coalesce| entries_keep_coming(&git, count, pace, probes, coalesce).await;
        tokio::join!(run(false), run(true));
    }
}

/// How long each push took.
#[derive(Default)]
struct Pushes(Mutex<(Option<Instant>, Vec<Duration>)>);

impl Steps for Pushes {
    fn reached(&self, step: Step) {
        let (began, times) = &mut *self.0.lock().unwrap();
        match step {
            Step::Pushing => *began = Some(Instant::now()),
            Step::Pushed => times.extend(began.take().map(|began| began.elapsed())),
            _ => {}
        }
    }
}

/// T6: pushes to a place that never answers.
async fn is_given_up(git: &Git, url: &str, what: &str) {
    let mut w = World::new(git).await;
    w.config.push_timeout = Duration::from_secs(if is_long() { 30 } else { 1 });
    w.config.push_tries = 1;
    w.git = git.clone().with_protocols(Protocols::parse("http").unwrap());
    w.set_url(url);
    w.push(MAIN, None, &w.commit(None, "a"));
    let pushes = Arc::new(Pushes::default());
    let (git, repo, config) = w.again();
    let steps: Arc<dyn Steps> = Arc::<Pushes>::clone(&pushes);
    let mut worker = Worker::open_with(git, repo, config, Arc::new(Always), steps).unwrap();
    // A comparison, a question, a push, a question.
    let patience = 4 * w.config.push_timeout + PATIENCE;
    let drained =
        tokio::time::timeout(patience, worker.drain(CancellationToken::new())).await.unwrap().unwrap();
    assert!(matches!(drained.end, Round::Waiting(_)), "{drained:?}");
    assert_eq!(w.letters()[0].letter.reason, Reason::Outage);
    let ended = Instant::now();
    eventually("no process is left", || processes_with(url, "cmdline").is_empty()).await;
    let (times, left) = (&pushes.0.lock().unwrap().1, ended.elapsed());
    println!(
        "{what}: {:?} to push, given up after {times:?}, no process {left:?} later",
        w.config.push_timeout
    );
}

#[tokio::test]
async fn a_silent_remote_is_given_up_and_no_process_is_left() {
    for git in gits() {
        is_given_up(&git, &Server::start(None).url, "silent").await;
    }
}

#[tokio::test]
async fn a_remote_that_lets_nobody_connect_is_given_up_and_no_process_is_left() {
    let unreached = Unreached::start();
    for git in gits() {
        is_given_up(&git, &unreached.url, "not reached").await;
    }
}

/// Lets the first push run into its timeout while the other side still works on it, as a server on another machine
/// does: it is in another session, so it does not end with our git.
struct SlowServer {
    world: World,
    go: PathBuf,
}

impl SlowServer {
    async fn new(git: &Git) -> Self {
        let mut world = World::new(git).await;
        let bin = world.dir.path().join("bin");
        executable(&bin.join("ssh"), "while [ $# -gt 1 ]; do shift; done\nexec setsid sh -c \"$1\"");
        let mut path = bin.into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap());
        world.git = Git::new(git.program(), path);
        world.set_url(&format!("ssh://elsewhere{}", world.remote.path().display()));
        // Only the first push takes so long, also on a loaded machine.
        world.config.push_timeout = Duration::from_secs(5);
        let go = world.dir.path().join("go");
        let first = world.dir.path().join("first");
        world.remote_hook(
            "pre-receive",
            &format!(
                "if mkdir {} 2>/dev/null; then while ! test -e {}; do sleep 0.05; done; fi",
                first.display(),
                go.display()
            ),
        );
        Self { world, go }
    }
}

#[tokio::test]
async fn a_push_that_arrives_after_its_time_does_no_harm_to_newer_ones() {
    for git in gits() {
        let SlowServer { world: w, go } = SlowServer::new(&git).await;
        let chain = w.chain(2);
        let ids = [w.push(MAIN, None, &chain[0]), w.push(MAIN, Some(&chain[0]), &chain[1])];
        w.drain_all().await;
        w.assert_mirrored(&chain[1]);
        std::fs::write(&go, "").unwrap();
        eventually("the late push is over", || {
            processes_with(w.dir.path().to_str().unwrap(), "cmdline").is_empty()
        })
        .await;
        w.assert_mirrored(&chain[1]);
        for id in ids {
            assert_eq!(w.status(&id).0, Status::Completed);
        }
        assert_eq!(w.letters().len(), 0);
    }
}

/// Lets the late push arrive right after we gave up on it.
struct LetArrive {
    go: PathBuf,
    arrived: PathBuf,
    done: AtomicBool,
}

impl Steps for LetArrive {
    fn reached(&self, step: Step) {
        if step == Step::Pushed && !self.done.swap(true, Ordering::SeqCst) {
            std::fs::write(&self.go, "").unwrap();
            let deadline = Instant::now() + PATIENCE;
            while !self.arrived.exists() {
                assert!(Instant::now() < deadline, "it never arrives");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

#[tokio::test]
async fn a_push_that_arrives_after_its_time_is_found_and_not_pushed_again() {
    for git in gits() {
        let SlowServer { world: w, go } = SlowServer::new(&git).await;
        w.log_updates();
        let arrived = w.remote.path().join(WATERMARK);
        let a = w.commit(None, "a");
        let id = w.push(MAIN, None, &a);
        let steps = LetArrive { go, arrived, done: AtomicBool::new(false) };
        let (git, repo, config) = w.again();
        let mut worker = Worker::open_with(git, repo, config, Arc::new(Always), Arc::new(steps)).unwrap();
        let drained = worker.drain(CancellationToken::new()).await.unwrap();
        assert_eq!((drained.end, drained.left), (Round::Idle, 0));
        w.assert_mirrored(&a);
        assert_eq!(w.status(&id), (Status::Completed, "already-mirrored".to_owned()));
        assert_eq!(w.updates(MAIN).len(), 1);
    }
}

#[tokio::test]
async fn a_push_that_is_always_too_slow_parks_its_ref_and_holds_up_nobody_for_ever() {
    let mut w = World::new(&gits()[0]).await;
    // Too short for one ref, and long enough for the others on a loaded machine.
    w.config.push_timeout = Duration::from_secs(5);
    w.config.push_tries = 1;
    w.remote_hook("update", "case $1 in refs/kv/slow) sleep 600;; esac");
    let a = w.commit(None, "a");
    let slow = w.push("refs/kv/slow", None, &a);
    let main = w.push(MAIN, None, &a);
    w.drain_all().await;
    w.assert_mirrored(&a);
    assert_eq!((w.status(&slow).0, w.status(&main).0), (Status::DeadLetter, Status::Completed));
    assert_eq!(w.letters()[0].letter.reason, Reason::Timeout);
}

//! A worker is killed at its n-th system call of a kind, for every n, and each of its syncs fails (T1, T4).
//!
//! strace does the harm, to the worker alone: its gits live on for a moment, as they do when a worker is killed, and
//! the next worker meets them. What was pushed is counted on the other side.

use std::time::Duration;

use stargate_git::{Git, Oid};
use stargate_mirror::status::Status;
use stargate_testkit::git::executable;

use crate::fixture::{MAIN, Move, World, entry, eventually, gits, is_long};
use crate::process::{Order, Whose, has_stopped, was_killed};

/// The refs that take turns: with a watermark, without one, with another one.
const REFS: [&str; 3] = [MAIN, "refs/kv-index/main", "refs/kv/other"];
/// More kills than a journal that gets shorter each time can take.
const KILLS_MAX: usize = 400;

/// How many entries there are for each kind of call.
fn entries() -> usize {
    let usual = if is_long() { 200 } else { 20 };
    std::env::var("STARGATE_TEST_KILL_ENTRIES").ok().map_or(usual, |n| n.parse().unwrap())
}

/// A journal that is full already, and the books of the other side.
struct Full {
    w: World,
    chain: Vec<Oid>,
    ids: Vec<String>,
}

impl Full {
    async fn new(git: &Git, count: usize) -> Self {
        let w = World::new(git).await;
        w.log_pushes();
        let chain = w.chain(count);
        let entries = chain.iter().enumerate().map(|(n, oid)| {
            let before = n.checked_sub(REFS.len()).map(|n| &chain[n]);
            entry(REFS[n % REFS.len()], before, oid)
        });
        let ids = w.append(entries.collect());
        for (n, oid) in chain.iter().enumerate().skip(count.saturating_sub(REFS.len())) {
            w.update_ref(REFS[n % REFS.len()], oid);
        }
        Self { w, chain, ids }
    }

    /// Each entry has one record and moved its ref once, forward, in order; and no more pushes than that were begun
    /// than workers were killed.
    async fn assert_mirrored(&self, what: &str, kills: usize) {
        let w = &self.w;
        // The other side writes it down a moment after it is done.
        let is_data = |moved: &Move| REFS.contains(&moved.name.as_str());
        eventually("all has moved", || {
            w.moves().iter().filter(|moved| is_data(moved)).count() >= self.ids.len()
        })
        .await;
        for id in &self.ids {
            assert_eq!(w.status(id).0, Status::Completed, "{what}");
        }
        assert_eq!(w.records().len(), self.ids.len(), "{what}: a record each and no other");
        assert_eq!(w.letters().len(), 0, "{what}: {:?}", w.letters());
        let moves = w.moves();
        for (first, name) in REFS.into_iter().enumerate() {
            let expected: Vec<&str> =
                self.chain.iter().skip(first).step_by(REFS.len()).map(Oid::as_str).collect();
            let of_ref: Vec<_> = moves.iter().filter(|moved| moved.name == name).collect();
            let seen: Vec<&str> = of_ref.iter().map(|moved| moved.new.as_str()).collect();
            assert_eq!(seen, expected, "{what}: {name} went another way");
            for pair in of_ref.windows(2) {
                assert_eq!(pair[0].new, pair[1].old, "{what}: {name} went from elsewhere");
            }
        }
        let pushes = w.pushes();
        let repeated = pushes - self.ids.len();
        println!("{what}: {} entries, {kills} kills, {pushes} pushes, {repeated} repeated", self.ids.len());
        assert!(repeated <= kills, "{what}: {repeated} pushes were repeated after {kills} kills");
    }
}

/// Starts workers until one comes to the end: the first dies at its first call of the kind, the second at its
/// second, and so on.
async fn killed_at_every(call: &str) {
    for git in gits() {
        let full = Full::new(&git, entries()).await;
        let order = Order::of(&full.w);
        let kills = (1..KILLS_MAX).find(|nth| {
            let status = order.run_with(Whose::Worker, call, &format!("signal=SIGKILL:when={nth}"));
            assert!(status.success() || was_killed(status), "{call} {nth}: {status}");
            status.success()
        });
        let kills = kills.expect("a worker comes to the end") - 1;
        assert!(kills >= 2, "only {kills} kills at {call}: does strace see it?");
        full.assert_mirrored(call, kills).await;
    }
}

#[tokio::test]
async fn a_worker_killed_at_every_nth_write_loses_nothing_and_repeats_a_push_at_most() {
    killed_at_every("write").await;
}

#[tokio::test]
async fn a_worker_killed_at_every_nth_fdatasync_loses_nothing_and_repeats_a_push_at_most() {
    killed_at_every("fdatasync").await;
}

#[tokio::test]
async fn a_worker_killed_at_every_nth_fsync_loses_nothing_and_repeats_a_push_at_most() {
    killed_at_every("fsync").await;
}

#[tokio::test]
async fn a_worker_killed_at_every_nth_rename_loses_nothing_and_repeats_a_push_at_most() {
    killed_at_every("rename,renameat,renameat2").await;
}

/// A git that kills whoever starts it when it is started for the n-th time, and goes on or not.
fn deadly_git(w: &World, nth: usize, goes_on: bool) -> std::path::PathBuf {
    let (program, starts) = (w.dir.path().join("deadly-git"), w.dir.path().join("starts"));
    std::fs::write(&starts, "").unwrap();
    let (starts, git) = (starts.display(), w.git.program().display());
    let end = if goes_on { "" } else { "; exit 1" };
    let script = format!(
        "echo x >> {starts}\nif test $(wc -l < {starts}) -eq {nth}; then kill -9 $PPID{end}; fi\nexec {git} \"$@\""
    );
    executable(&program, &script);
    program
}

#[tokio::test]
async fn a_worker_killed_at_every_nth_start_of_a_git_loses_nothing_and_repeats_a_push_at_most() {
    for git in gits() {
        for goes_on in [true, false] {
            let full = Full::new(&git, entries()).await;
            let kills = (1..KILLS_MAX).find(|nth| {
                let order = Order { git: deadly_git(&full.w, *nth, goes_on), ..Order::of(&full.w) };
                order.run(&[]).success()
            });
            let kills = kills.expect("a worker comes to the end") - 1;
            let what = if goes_on { "exec, git goes on" } else { "exec, git ends too" };
            full.assert_mirrored(what, kills).await;
        }
    }
}

/// What strace writes down of a worker whose n-th sync fails: when that was, and when the worker had ended.
fn time_to_the_end(log: &str) -> Option<f64> {
    let time = |line: &str| line.split_whitespace().nth(1)?.parse::<f64>().ok();
    let failed = log.lines().find(|line| line.contains("(INJECTED)")).and_then(time)?;
    let ended = log.lines().rev().find(|line| line.contains("+++ exited with")).and_then(time)?;
    Some(ended - failed)
}

/// Lets the n-th sync of a kind fail. None if there are not so many.
fn fail(order: &Order, log: &std::path::Path, call: &str, nth: usize) -> Option<f64> {
    let inject = format!("inject={call}:error=EIO:when={nth}");
    let trace = format!("trace={call},exit_group");
    let log_name = log.to_str().unwrap();
    let tracer = ["strace", "-f", "-b", "execve", "-ttt", "-o", log_name, "-e", &trace, "-e", &inject];
    let status = order.run(&tracer.map(str::to_owned));
    if status.success() {
        return None;
    }
    assert!(has_stopped(status), "went on after {call} {nth} had failed: {status}");
    time_to_the_end(&std::fs::read_to_string(log).unwrap())
}

#[tokio::test]
async fn a_worker_whose_sync_fails_ends_at_once_and_nothing_that_it_recorded_is_lost() {
    for git in gits() {
        for call in ["fdatasync", "fsync"] {
            let full = Full::new(&git, entries()).await;
            let (order, log) = (Order::of(&full.w), full.w.dir.path().join("strace"));
            let mut times: Vec<f64> = Vec::new();
            let mut recorded = 0;
            while let Some(time) = fail(&order, &log, call, times.len() + 1) {
                times.push(time);
                // What was acknowledged stays so.
                let records = full.w.records().len();
                assert!(records >= recorded, "{records} records after {recorded}");
                recorded = records;
                assert!(times.len() < KILLS_MAX, "no worker comes to the end");
            }
            assert!(times.len() >= 2, "only {} syncs failed: does strace see them?", times.len());
            let longest = times.iter().copied().fold(0.0, f64::max);
            println!("{} times {call} failed; the end came {longest:.3} s later at most", times.len());
            full.assert_mirrored(call, times.len()).await;
        }
    }
}

/// How long a sync is held up before it fails, so that the push beside it hangs by then: longer on a loaded machine.
const HELD_UP: [Duration; 3] = [Duration::from_secs(2), Duration::from_secs(10), Duration::from_secs(60)];

/// Lets the sync of the first record fail while the second push hangs. False if that one did not get so far.
async fn fails_beside_a_push(git: &Git, held_up: Duration) -> bool {
    let full = Full::new(git, 2).await;
    let (hangs, go) = (full.w.dir.path().join("hangs"), full.w.dir.path().join("go"));
    full.w.remote_hook(
        "update",
        &format!(
            "if test $1 = {}; then touch {}; while ! test -e {}; do sleep 0.05; done; fi",
            REFS[1],
            hangs.display(),
            go.display()
        ),
    );
    let order = Order { push_timeout: Duration::from_secs(3600), ..Order::of(&full.w) };
    let harm = format!("inject=fdatasync:error=EIO:delay_enter={}:when=1", held_up.as_micros());
    let trace = "trace=fdatasync";
    let tracer = ["strace", "-f", "-b", "execve", "-qq", "-o", "/dev/null", "-e", trace, "-e", &harm];
    let mut worker = order.command(&tracer.map(str::to_owned)).spawn().unwrap();
    let status = ends(&mut worker).await;
    assert!(has_stopped(status), "{status}");
    let did_hang = hangs.exists();
    // It arrives late, perhaps while the next worker is at work.
    std::fs::write(&go, "").unwrap();
    if !did_hang {
        return false;
    }
    assert!(Order::of(&full.w).run(&[]).success());
    full.assert_mirrored("a sync failed beside a push", 1).await;
    true
}

/// While one entry is recorded the next is pushed already; a push may take its time, the end of the worker may not.
#[tokio::test]
async fn a_worker_whose_sync_fails_does_not_wait_for_a_push_that_hangs() {
    for git in gits() {
        let mut done = false;
        for held_up in HELD_UP {
            done = done || fails_beside_a_push(&git, held_up).await;
        }
        assert!(done, "the push never got so far");
    }
}

/// How a process ends, which it must do soon.
async fn ends(child: &mut std::process::Child) -> std::process::ExitStatus {
    let mut status = None;
    eventually("the worker ends", || {
        status = child.try_wait().unwrap();
        status.is_some()
    })
    .await;
    status.unwrap()
}

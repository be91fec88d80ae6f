//! A process that publishes is killed, or stands still, at each step. Nobody ever reads a partial artifact, and the
//! next attempt leaves exactly one.
//!
//! The other process is this test binary again, told by its environment what to do.

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use async_trait::async_trait;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use stargate_artifact::{Found, PERMISSION_AGE_MAX, Permit, Published, Publisher, Step, Steps};
use stargate_base::clock::Moment;
use stargate_testkit::eventually;
use stargate_testkit::s3::Corner;

use crate::fixture::{Fixture, LARGE, Place, SMALL, by, content};

const TOLD: &str = "STARGATE_TEST_PUBLISH";
const OTHER: [&str; 2] = ["--exact", "kill::the_process_that_is_told_to_publish_does_so"];
/// Those at which nothing has appeared yet.
const BEFORE: [Step; 5] = [Step::Begun, Step::HalfWritten, Step::Written, Step::Synced, Step::Permitted];
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends this process a signal when it reaches a step, and goes on when there is a file that says so.
struct At {
    step: Option<Step>,
    signal: Signal,
    go: PathBuf,
}

impl Steps for At {
    fn reached(&self, step: Step) {
        if Some(step) == self.step {
            kill_process(rustix::process::getpid(), self.signal).unwrap();
            // The signal goes to any thread, so this one may run on for a moment.
            while !self.go.exists() {
                std::thread::yield_now();
            }
        }
    }
}

/// Says yes as long as there is no file that says otherwise.
struct UnlessLost(PathBuf);

#[async_trait]
impl Permit for UnlessLost {
    async fn holds(&self) -> bool {
        !self.0.exists()
    }
}

/// The other process. Without an order it publishes in a place of its own.
#[tokio::test]
async fn the_process_that_is_told_to_publish_does_so() {
    let Ok(told) = std::env::var(TOLD) else {
        let f = Fixture::local();
        assert!(matches!(f.publish("17-1", &f.file(1, SMALL)).await, Ok(Published::Stored(_))));
        return;
    };
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let text = |name: &str| told[name].as_str().unwrap().to_owned();
    let place = match told["folder"].as_str() {
        Some(folder) => Place::Local(folder.into()),
        None => Place::S3(Corner { prefix: text("prefix"), ..Corner::create() }),
    };
    let step = Step::ALL.into_iter().find(|step| step.as_str() == text("at"));
    let signal = if text("signal") == "kill" { Signal::KILL } else { Signal::STOP };
    let key = stargate_artifact::Key::result(17, "clip.mp4").unwrap();
    let steps = At { step, signal, go: text("go").into() };
    let permit = UnlessLost(text("lost").into());
    let by = Publisher { permit: &permit, steps: &steps, ..by("17-1") };
    let answer = match place.open().publish(&key, Path::new(&text("file")), by).await {
        Ok(Published::Stored(_)) => "stored".to_owned(),
        Ok(Published::Adopted(_)) => "adopted".to_owned(),
        Err(error) => format!("{error} ({}), and keeps {:?}", error.class(), place.names().await),
    };
    std::fs::write(text("answer"), answer).unwrap();
}

fn start(f: &Fixture, file: &Path, at: Step, signal: &str) -> Child {
    #[expect(clippy::disallowed_methods, reason = "a process that can be killed")]
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(OTHER).env(TOLD, told(f, file, at.as_str(), signal));
    command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
}

fn told(f: &Fixture, file: &Path, at: &str, signal: &str) -> String {
    let [answer, go, lost] = ["answer", "go", "lost"].map(|name| f.home.path().join(name));
    let mut told = serde_json::json!({
        "file": file, "at": at, "signal": signal, "answer": answer, "go": go, "lost": lost,
    });
    match &f.place {
        Place::Local(folder) => told["folder"] = folder.to_str().unwrap().into(),
        Place::S3(corner) => told["prefix"] = corner.prefix.as_str().into(),
    }
    told.to_string()
}

/// Reads at the final key as often as it can until the process has ended. Everything read must be one of the two.
async fn watch_to_its_end(f: &Fixture, mut child: Child, size: usize) -> ExitStatus {
    eventually(PATIENCE, "the end of the other process", || {
        let ended = child.try_wait().unwrap();
        async move {
            assert_not_partial(f, size).await;
            ended.ok_or_else(|| "it runs".to_owned())
        }
    })
    .await
}

async fn assert_not_partial(f: &Fixture, size: usize) {
    if let Some(read) = f.place.read(f.key.as_str()).await {
        let whole = read == content(1, size) || read == content(2, size);
        assert!(whole, "a reader got {} bytes that are no artifact", read.len());
    }
}

/// Exactly one artifact, valid, with the bytes of the attempt that its manifest names.
async fn assert_one(f: &Fixture, size: usize) {
    let found = f.store.find(&f.key).await.unwrap();
    let Found::Valid(manifest) = found else { panic!("{found:?}") };
    let seed = if manifest.attempt == "17-1" { 1 } else { 2 };
    assert!(
        f.place.read(f.key.as_str()).await.unwrap() == content(seed, size),
        "bytes of {}",
        manifest.attempt
    );
    assert_eq!(f.place.names().await, ["results/17/clip.mp4", "results/17/clip.mp4.json"]);
}

async fn killed_at(f: Fixture, step: Step, size: usize) {
    let (first, second) = (f.file(1, size), f.file(2, size));
    let status = watch_to_its_end(&f, start(&f, &first, step, "kill"), size).await;
    assert_eq!(status.signal(), Some(9), "at {}: {status}", step.as_str());
    let found = f.store.find(&f.key).await.unwrap();
    let appeared = f.place.read(f.key.as_str()).await.is_some();
    match step {
        Step::Described => assert!(matches!(found, Found::Valid(_)), "{found:?}"),
        Step::Moved => match &f.place {
            Place::Local(_) => assert!(matches!(found, Found::Damaged(_)) && appeared, "{found:?}"),
            Place::S3(_) => assert!(matches!(found, Found::Valid(_)) && appeared, "{found:?}"),
        },
        _ => assert!(found == Found::Absent && !appeared, "{found:?}"),
    }
    let published = f.publish("17-2", &second).await.unwrap();
    let adopts = step == Step::Described || (step == Step::Moved && matches!(f.place, Place::S3(_)));
    assert_eq!(matches!(published, Published::Adopted(_)), adopts, "{published:?}");
    assert_one(&f, size).await;
}

#[tokio::test]
async fn killed_at_any_step_a_folder_holds_nothing_partial() {
    for step in Step::ALL {
        killed_at(Fixture::local(), step, SMALL).await;
    }
}

#[tokio::test]
async fn killed_at_any_step_a_bucket_holds_nothing_partial_of_a_small_file() {
    for step in Step::ALL {
        killed_at(Fixture::s3(), step, SMALL).await;
    }
}

#[tokio::test]
async fn killed_at_any_step_a_bucket_holds_nothing_partial_of_a_large_file() {
    for step in Step::ALL {
        killed_at(Fixture::s3(), step, LARGE).await;
    }
}

/// A process that publishes and stands still at a step.
async fn stopped(f: &Fixture, file: &Path, step: Step) -> (Child, Pid) {
    let child = start(f, file, step, "stop");
    let pid = Pid::from_child(&child);
    eventually(PATIENCE, "the other process to stand still", || {
        let seen = waitpid(Some(pid), WaitOptions::UNTRACED | WaitOptions::NOHANG).unwrap();
        async move {
            match seen {
                Some((_, status)) if status.stopped() => Ok(()),
                Some((_, status)) => panic!("it ended: {status:?}"),
                None => Err("it runs".to_owned()),
            }
        }
    })
    .await;
    (child, pid)
}

/// Lets it go on, and gives its answer.
async fn answer(f: &Fixture, (child, pid): (Child, Pid), size: usize) -> String {
    std::fs::write(f.home.path().join("go"), "").unwrap();
    kill_process(pid, Signal::CONT).unwrap();
    let status = watch_to_its_end(f, child, size).await;
    assert!(status.success(), "{status}");
    std::fs::read_to_string(f.home.path().join("answer")).unwrap()
}

/// Attempt 1 stands still at a step, attempt 2 publishes, attempt 1 goes on.
async fn stopped_at(f: Fixture, step: Step, size: usize) {
    let (first, second) = (f.file(1, size), f.file(2, size));
    let other = stopped(&f, &first, step).await;
    f.publish("17-2", &second).await.unwrap();
    // What the other one still writes to is not taken from it.
    let before = f.place.read(f.key.as_str()).await;
    let answer = answer(&f, other, size).await;
    assert_one(&f, size).await;
    assert!(f.place.read(f.key.as_str()).await == before, "the artifact is another one now");
    let stored = matches!(step, Step::Moved | Step::Described);
    assert_eq!(answer, if stored { "stored" } else { "adopted" });
}

#[tokio::test]
async fn a_process_that_stood_still_does_not_replace_the_artifact_in_a_folder() {
    for step in BEFORE {
        stopped_at(Fixture::local(), step, SMALL).await;
    }
}

#[tokio::test]
async fn a_process_that_stood_still_does_not_replace_the_artifact_in_a_bucket() {
    for step in Step::ALL {
        stopped_at(Fixture::s3(), step, SMALL).await;
    }
    stopped_at(Fixture::s3(), Step::Synced, LARGE).await;
    stopped_at(Fixture::s3(), Step::Moved, LARGE).await;
}

/// Attempt 1 stands still at a step, loses its lease, and goes on before anybody else has published.
async fn loses_its_lease_at(f: Fixture, step: Step, size: usize) {
    let other = stopped(&f, &f.file(1, size), step).await;
    let stood_still = Moment::now();
    std::fs::write(f.home.path().join("lost"), "").unwrap();
    eventually(PATIENCE, "the answer to be old", || async {
        if stood_still.age() > PERMISSION_AGE_MAX { Ok(()) } else { Err("it is fresh".to_owned()) }
    })
    .await;
    let answer = answer(&f, other, size).await;
    assert!(answer.starts_with("the attempt no longer holds its job"), "at {}: {answer}", step.as_str());
    assert!(answer.ends_with("and keeps []"), "at {}: {answer}", step.as_str());
}

#[tokio::test]
async fn a_process_that_lost_its_lease_while_it_stood_still_publishes_nothing_in_a_folder() {
    for step in BEFORE {
        loses_its_lease_at(Fixture::local(), step, SMALL).await;
    }
}

#[tokio::test]
async fn a_process_that_lost_its_lease_while_it_stood_still_publishes_nothing_in_a_bucket() {
    for step in BEFORE {
        loses_its_lease_at(Fixture::s3(), step, SMALL).await;
    }
    loses_its_lease_at(Fixture::s3(), Step::Permitted, LARGE).await;
}

#[tokio::test]
async fn a_full_disk_is_an_error_that_says_so_and_keeps_nothing() {
    let f = Fixture::local();
    let Place::Local(folder) = &f.place else { panic!("a folder") };
    std::fs::create_dir_all(folder).unwrap();
    // A file system that only the other process can see. Root needs no user namespace, others cannot mount without.
    let namespace = if rustix::process::geteuid().is_root() { "-m" } else { "-rm" };
    let script = r#"mount -t tmpfs -o size=64k tmpfs "$0" && exec "$@""#;
    #[expect(clippy::disallowed_methods, reason = "a process with a disk of its own")]
    let mut command = Command::new("unshare");
    command.args([namespace, "sh", "-c", script]).arg(folder).arg(std::env::current_exe().unwrap());
    command.args(OTHER).env(TOLD, told(&f, &f.file(1, SMALL), "nowhere", "stop")).stdout(Stdio::null());
    assert!(command.status().unwrap().success(), "this machine gives no mount namespace");
    let answer = std::fs::read_to_string(f.home.path().join("answer")).unwrap();
    assert!(answer.starts_with("no space is left to write "), "{answer}");
    assert!(answer.ends_with("(RetryableTransient), and keeps []"), "{answer}");
}

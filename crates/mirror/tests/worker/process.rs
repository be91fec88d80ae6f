//! Another process that mirrors, and that can be killed: this test binary again, told by its environment what to do.

use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};
use stargate_git::{Git, Protocols, RepoDir};
use stargate_mirror::permit::Always;
use stargate_mirror::{Config, Round, Step, Steps, Worker};
use tokio_util::sync::CancellationToken;

use crate::fixture::{MAIN, World, gits};

const TOLD: &str = "STARGATE_TEST_MIRROR";
const OTHER: [&str; 2] = ["--exact", "process::the_process_that_is_told_to_mirror_does_so"];
/// The end of a process whose disk does not keep what is written.
const FAIL_STOP: i32 = 70;

/// What to do: mirror until nothing is left.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) git: PathBuf,
    pub(crate) repo: PathBuf,
    pub(crate) coalesce: bool,
    pub(crate) push_tries: u32,
    pub(crate) push_timeout: Duration,
    /// The name of the step at which it dies, and at which time it gets there.
    pub(crate) die_at: Option<(String, usize)>,
}

impl Order {
    pub(crate) fn of(w: &World) -> Self {
        let Config { coalesce, push_tries, push_timeout, .. } = w.config;
        let (git, repo) = (w.git.program().to_owned(), w.repo.path().to_owned());
        Self { git, repo, coalesce, push_tries, push_timeout, die_at: None }
    }

    /// Dies when it gets to a step for the n-th time.
    pub(crate) fn dying_at(mut self, step: Step, nth: usize) -> Self {
        self.die_at = Some((step.as_str().to_owned(), nth));
        self
    }

    /// The process that does it, by way of another program if there is one.
    pub(crate) fn command(&self, by_way_of: &[String]) -> Command {
        let own = std::env::current_exe().unwrap();
        let mut words = by_way_of.to_vec();
        words.push(own.to_str().unwrap().to_owned());
        #[expect(clippy::disallowed_methods, reason = "the worker that is killed")]
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(OTHER).env(TOLD, serde_json::to_string(self).unwrap());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    /// Runs it. It ends well, is killed, or ends because of its disk.
    pub(crate) fn run(&self, by_way_of: &[String]) -> ExitStatus {
        let output = self.command(by_way_of).output().expect("strace is missing: apt-get install strace");
        let (status, said) = (output.status, String::from_utf8_lossy(&output.stderr));
        assert!(status.success() || was_killed(status) || has_stopped(status), "{status}: {said}");
        status
    }

    /// Runs it under strace, which changes what a system call of the worker does, or of a git as well.
    pub(crate) fn run_with(&self, whose: Whose, call: &str, what: &str) -> ExitStatus {
        let (trace, inject) = (format!("trace={call}"), format!("inject={call}:{what}"));
        let mut tracer = vec!["strace", "-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
        if whose == Whose::Worker {
            tracer.extend(["-b", "execve"]);
        }
        self.run(&tracer.into_iter().map(str::to_owned).collect::<Vec<_>>())
    }
}

/// Whose system calls are changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    Worker,
    WorkerAndGits,
}

pub(crate) fn was_killed(status: ExitStatus) -> bool {
    // A tracer ends as the traced one did, or with the code a shell would give it.
    status.signal() == Some(9) || status.code() == Some(137)
}

/// Because of its disk.
pub(crate) fn has_stopped(status: ExitStatus) -> bool {
    status.code() == Some(FAIL_STOP)
}

/// Ends this process when it reaches a step for the n-th time.
struct DieAt {
    step: Option<Step>,
    left: AtomicUsize,
}

impl Steps for DieAt {
    fn reached(&self, step: Step) {
        if Some(step) == self.step && self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            kill_process(getpid(), Signal::KILL).unwrap();
            // The signal goes to any thread, so this one may run on for a moment.
            loop {
                std::thread::yield_now();
            }
        }
    }
}

/// The other process. Without an order it mirrors in a place of its own.
#[tokio::test]
async fn the_process_that_is_told_to_mirror_does_so() {
    let Ok(told) = std::env::var(TOLD) else {
        let w = World::new(&gits()[0]).await;
        let a = w.commit(None, "a");
        w.push(MAIN, None, &a);
        w.drain_all().await;
        return;
    };
    let order: Order = serde_json::from_str(&told).unwrap();
    let git = Git::new(&order.git, std::env::var_os("PATH").unwrap())
        .with_protocols(Protocols::parse("file").unwrap());
    let repo = RepoDir::open(&order.repo).unwrap();
    let (name, nth) = order.die_at.unwrap_or_default();
    let step = Step::ALL.into_iter().find(|step| step.as_str() == name);
    let steps = Arc::new(DieAt { step, left: AtomicUsize::new(nth) });
    let config = Config {
        push_tries: order.push_tries,
        push_timeout: order.push_timeout,
        coalesce: order.coalesce,
        malformed_rereads: 0,
        ..Config::new().unwrap()
    };
    let opened = Worker::open_with(git, repo, config, Arc::new(Always), steps);
    let drained = match opened {
        Ok(mut worker) => worker.drain(CancellationToken::new()).await,
        Err(error) => Err(error),
    };
    match drained {
        Ok(drained) => assert!(matches!(drained.end, Round::Idle | Round::Waiting(_)), "{drained:?}"),
        Err(error) if error.is_fail_stop() => std::process::exit(FAIL_STOP),
        Err(error) => panic!("{error}: {:?}", std::error::Error::source(&error)),
    }
}

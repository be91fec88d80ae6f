//! What systemd is told, in which order, and when it is told no more.

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use stargate_testkit::eventually;
use stargate_testkit::postgres::{Database, URL_VARIABLE};
use stargate_testkit::process::{Program, get};
use stargate_testkit::proxy::Proxy;

use crate::{PATIENCE, configured};

const TOML: &str = r#"
[worker]
heartbeat = "200ms"
lease = "1s"
shutdown_timeout = "10s"
[kinds."environment"]
exec = ["sh", "-c", "env > environment.txt"]
[kinds."nap"]
exec = ["sleep", "1"]
"#;

/// In place of systemd: the socket that it listens on, and what was heard.
struct Supervisor {
    socket: UnixDatagram,
    path: PathBuf,
    heard: Vec<String>,
}

impl Supervisor {
    fn beside(program: &Program) -> Self {
        let path = program.home().join("notify.sock");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        Self { socket, path, heard: Vec::new() }
    }

    fn settings(&self) -> [(&'static str, &str); 2] {
        [("NOTIFY_SOCKET", self.path.to_str().unwrap()), ("WATCHDOG_USEC", "400000")]
    }

    /// Listens until a message contains `words`.
    fn hear(&mut self, words: &str) {
        let started = Instant::now();
        while !self.listen().is_some_and(|message| message.contains(words)) {
            assert!(started.elapsed() < PATIENCE, "never heard {words}; heard {:?}", self.heard);
        }
    }

    /// The next message, if one comes soon.
    fn listen(&mut self) -> Option<String> {
        let mut bytes = [0; 4096];
        let count = self.socket.recv(&mut bytes).ok()?;
        let message = String::from_utf8_lossy(&bytes[..count]).trim_end().to_owned();
        self.heard.push(message.clone());
        Some(message)
    }

    fn position(&self, words: &str) -> usize {
        let found = self.heard.iter().position(|message| message.contains(words));
        found.unwrap_or_else(|| panic!("never heard {words}; heard {:?}", self.heard))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ready_then_signs_of_life_then_stopping_with_time_to_drain() {
    for role in ["up", "worker", "serve"] {
        let program = configured(TOML);
        let mut supervisor = Supervisor::beside(&program);
        let mut process = program.start_with(&[role], &supervisor.settings());
        supervisor.hear("READY=1");
        let (status, _) = get(process.address(), "/readyz").await.unwrap();
        assert_eq!(status, 200, "{role}: ready was said too early");
        supervisor.hear("WATCHDOG=1");
        supervisor.hear("WATCHDOG=1");
        let runs_jobs = role != "serve";
        if runs_jobs {
            program.answer(&["job", "enqueue", "nap"]);
            supervisor.hear("STATUS=1 running, 0 buffered");
        }
        process.terminate();
        supervisor.hear("STOPPING=1");
        if runs_jobs {
            supervisor.hear("EXTEND_TIMEOUT_USEC=");
        }
        assert_eq!(process.ended(PATIENCE).await.code(), Some(0), "{}", process.log());
        while supervisor.listen().is_some() {}
        assert!(supervisor.position("READY=1") < supervisor.position("WATCHDOG=1"));
        let stopping = supervisor.position("STOPPING=1");
        assert!(supervisor.heard[..stopping].iter().all(|message| !message.contains("EXTEND_TIMEOUT_USEC")));
        assert!(supervisor.heard[stopping..].iter().all(|message| !message.contains("READY")), "{role}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn children_do_not_learn_where_the_supervisor_listens() {
    let program = configured(TOML);
    let supervisor = Supervisor::beside(&program);
    let mut worker = program.start_with(&["worker"], &supervisor.settings());
    worker.ready().await;
    program.answer(&["job", "enqueue", "environment", "--wait", "--timeout", "20s"]);
    let environment = std::fs::read_to_string(program.home().join("environment.txt")).unwrap();
    assert!(environment.contains("STARGATE_JOB_ID="), "{environment}");
    for name in ["NOTIFY_SOCKET", "WATCHDOG_USEC"] {
        assert!(!environment.contains(name), "{environment}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_away_makes_a_worker_unready_but_is_no_reason_to_restart_it() {
    let database = Database::create_empty().await;
    let authority = std::env::var(URL_VARIABLE).unwrap();
    let target = authority.split(['@', '/']).find(|part| part.contains(':') && !part.ends_with(':')).unwrap();
    let proxy = Proxy::start(target).await;
    let url = database.url().replace(target, &proxy.address());
    let program = configured(TOML).with("STARGATE_STORE", url);
    let mut supervisor = Supervisor::beside(&program);
    let worker = program.start_with(&["worker"], &supervisor.settings());
    supervisor.hear("READY=1");
    supervisor.hear("WATCHDOG=1");
    proxy.stall();
    eventually(PATIENCE, "a worker whose heartbeats do not get through", || async {
        match get(worker.address(), "/readyz").await {
            Ok((503, body)) if body.contains("no good beat") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    let (status, body) = get(worker.address(), "/healthz").await.unwrap();
    assert_eq!(status, 200, "{body}");
    while supervisor.listen().is_some_and(|said| !said.contains("heartbeats do not get through")) {} // earlier words
    supervisor.hear("WATCHDOG=1");
    supervisor.hear("WATCHDOG=1");
    proxy.forward();
    eventually(PATIENCE, "a worker that is ready again", || async {
        match get(worker.address(), "/readyz").await {
            Ok((200, _)) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    drop(worker);
    database.remove().await;
}

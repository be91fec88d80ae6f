//! Hearing of new jobs from other processes: LISTEN on a connection of its own.
//!
//! A pooler in transaction mode takes the LISTEN and then delivers nothing. So the ear is tested: another connection
//! sends a notification, and only if it arrives does the store promise to hear.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand::RngExt as _;
use stargate_base::{Backoff, Tasks};
use stargate_queue::Result;
use stargate_queue::store::WakeMethod;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client, Connection};
use tokio_util::sync::CancellationToken;

use super::calls::Calls;
use super::connect::{Connector, Line, Made};
use super::error::{TimedOut, transient, translate};
use super::sql;

/// How long the test notification may take.
const TEST_TIMEOUT: Duration = Duration::from_secs(1);
/// How often a quiet connection is asked whether it still lives.
const PING_EVERY: Duration = Duration::from_secs(30);
/// How long to wait before an ear that heard nothing is tried again.
const DEAF_RETRY: Duration = Duration::from_secs(60);
/// What test notifications begin with.
const TEST: &str = "test:";

/// What listens for notifications and wakes sleepers.
#[derive(Debug, Clone)]
pub(super) struct Ear {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    listening: Arc<Connector>,
    writing: Arc<Connector>,
    /// Notifications of this process, which it knows of already.
    own: String,
    calls: Arc<Calls>,
    heard: watch::Sender<String>,
    hears: AtomicBool,
    warned: AtomicBool,
    tasks: Tasks,
}

impl Ear {
    /// An ear on `listening`, tested through `writing`.
    pub(super) fn new(
        listening: Arc<Connector>,
        writing: Arc<Connector>,
        own: String,
        calls: Arc<Calls>,
        tasks: Tasks,
    ) -> Self {
        let shared = Shared {
            listening,
            writing,
            own,
            calls,
            heard: watch::Sender::new(String::new()),
            hears: AtomicBool::new(false),
            warned: AtomicBool::new(false),
            tasks,
        };
        Self { shared: Arc::new(shared) }
    }

    /// How a job enqueued by another process is noticed right now.
    pub(super) fn method(&self) -> WakeMethod {
        if self.shared.hears.load(Ordering::Relaxed) { WakeMethod::Notify } else { WakeMethod::Poll }
    }

    /// Opens the ear for the first time and keeps it open from then on.
    pub(super) async fn start(&self) {
        let first = self.open().await;
        let (ear, stop) = (self.clone(), self.shared.tasks.stopping());
        self.shared.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = ear.run(first) => {}
            }
        });
    }

    /// Keeps the ear open.
    async fn run(&self, first: Result<Option<Listening>>) {
        let mut next = first;
        let mut failures = 0;
        loop {
            match next {
                Ok(Some(listening)) => {
                    failures = 0;
                    self.shared.hears.store(true, Ordering::Relaxed);
                    // Whatever was said while nobody listened.
                    self.shared.calls.anywhere();
                    listening.until_broken().await;
                    self.shared.hears.store(false, Ordering::Relaxed);
                }
                Ok(None) => tokio::time::sleep(DEAF_RETRY).await,
                Err(error) => {
                    failures += 1;
                    tracing::debug!(
                        error = &error as &dyn std::error::Error,
                        failures,
                        "cannot listen for new jobs"
                    );
                    tokio::time::sleep(Backoff::RECONNECT.delay(failures)).await;
                }
            }
            next = self.open().await;
        }
    }

    /// Connects, listens and tests; `None` when notifications do not get through.
    async fn open(&self) -> Result<Option<Listening>> {
        const OPERATION: &str = "listen for new jobs";
        let shared = &self.shared;
        let gone = CancellationToken::new();
        let client = match shared.listening.make().await? {
            Made::Plain(client, driver) => {
                shared.tasks.spawn(pump(*driver, shared.clone(), gone.clone()));
                client
            }
            Made::Tls(client, driver) => {
                shared.tasks.spawn(pump(*driver, shared.clone(), gone.clone()));
                client
            }
        };
        let patience = shared.listening.patience();
        match tokio::time::timeout(patience, client.batch_execute(sql!("listen"))).await {
            Ok(done) => done.map_err(|error| translate(OPERATION, error))?,
            Err(_) => return Err(transient(OPERATION, TimedOut(patience))),
        }
        if self.test().await? {
            shared.hears.store(true, Ordering::Relaxed);
            return Ok(Some(Listening { client, gone, patience }));
        }
        if !shared.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "notifications do not get through, probably because of a connection pooler in transaction mode; new \
                 jobs of other processes are found by polling; set STARGATE_LISTEN_DSN to a direct connection"
            );
        }
        Ok(None)
    }

    /// Sends a notification from another connection and waits for it.
    pub(super) async fn test(&self) -> Result<bool> {
        let word = format!("{TEST}{:016x}", rand::rng().random::<u64>());
        let mut heard = self.shared.heard.subscribe();
        let line = Line::new(self.shared.writing.clone());
        line.session().await?.rows("test notifications", sql!("notify"), &[(&word, Type::TEXT)]).await?;
        let answer = tokio::time::timeout(TEST_TIMEOUT, heard.wait_for(|last| *last == word)).await;
        Ok(matches!(answer, Ok(Ok(_))))
    }
}

/// A connection that listens.
struct Listening {
    client: Client,
    gone: CancellationToken,
    patience: Duration,
}

impl Listening {
    /// Returns when the connection is of no more use.
    async fn until_broken(self) {
        loop {
            tokio::select! {
                () = self.gone.cancelled() => return,
                () = tokio::time::sleep(PING_EVERY) => {}
            }
            let ping = tokio::time::timeout(self.patience, self.client.check_connection()).await;
            if !matches!(ping, Ok(Ok(()))) {
                return;
            }
        }
    }
}

/// Moves the bytes of a listening connection and passes on what it hears.
async fn pump<S, T>(mut driver: Connection<S, T>, shared: Arc<Shared>, gone: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    let _gone = gone.drop_guard();
    let stop = shared.tasks.stopping();
    loop {
        let message = tokio::select! {
            () = stop.cancelled() => return,
            message = futures::future::poll_fn(|context| driver.poll_message(context)) => message,
        };
        match message {
            Some(Ok(AsyncMessage::Notification(said))) if said.payload().starts_with(TEST) => {
                shared.heard.send_replace(said.payload().to_owned());
            }
            Some(Ok(AsyncMessage::Notification(said))) => {
                // Who says it and, where that is all, in which lane.
                let (who, lane) = said.payload().split_once(' ').unwrap_or((said.payload(), ""));
                match lane.parse() {
                    _ if who == shared.own => {}
                    Ok(lane) => shared.calls.lanes(&[lane]),
                    Err(_) => shared.calls.anywhere(),
                }
            }
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return,
        }
    }
}

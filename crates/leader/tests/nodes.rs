//! Nodes for tests: bids, short settings, services that can be ended or killed.

use std::sync::Arc;
use std::time::Duration;

use stargate_base::Tasks;
use stargate_leader::boot::{Clock, SystemClock};
use stargate_leader::lease::{Bid, Token};
use stargate_leader::{Config, Epochs, Holder, Leadership, Lease, Service, Settings};
use tokio::task::JoinHandle;

/// How long anything may take before a test gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A bid with a token of its own.
pub(crate) fn bid(instance: &str, ttl: Duration) -> Bid {
    Bid {
        holder: Holder { instance: instance.to_owned(), address: Some(format!("http://{instance}")) },
        token: Token::random(&mut rand::rng()),
        ttl,
        timeout: Duration::from_secs(5),
        approved: None,
    }
}

/// Settings for a test that does not want to wait for half a minute.
pub(crate) fn config(instance: &str, ttl: Duration) -> Config {
    let holder = Holder { instance: instance.to_owned(), address: Some(format!("http://{instance}")) };
    let settings = Settings {
        ttl,
        renew_every: ttl / 3,
        retry_every: ttl / 6,
        retry_max: ttl,
        startup_guard: false,
        ..Settings::of(holder)
    };
    Config::new(settings).expect("settings that work")
}

/// A node that runs.
pub(crate) struct Node {
    pub(crate) leadership: Leadership,
    tasks: Tasks,
    running: JoinHandle<()>,
}

impl Node {
    pub(crate) fn start(config: Config, lease: Arc<dyn Lease>, epochs: Arc<dyn Epochs>) -> Self {
        Self::start_with_clock(config, lease, epochs, Arc::new(SystemClock))
    }

    pub(crate) fn start_with_clock(
        config: Config,
        lease: Arc<dyn Lease>,
        epochs: Arc<dyn Epochs>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let (service, leadership) = Service::with_clock(config, lease, epochs, clock);
        let tasks = Tasks::new();
        let running = tasks.spawn(service.run(tasks.stopping()));
        Self { leadership, tasks, running }
    }

    /// Ends it in good order.
    pub(crate) async fn stop(self) {
        tokio::time::timeout(PATIENCE, self.tasks.join()).await.expect("the node ends");
    }

    /// Ends it as a crash does: nothing is given back.
    pub(crate) fn kill(&self) {
        self.running.abort();
    }

    /// Waits until it leads.
    pub(crate) async fn leads(&self) -> stargate_leader::Guard {
        let guard = tokio::time::timeout(PATIENCE, self.leadership.acquired()).await;
        guard.unwrap_or_else(|_| panic!("waited in vain to lead: {:?}", self.leadership))
    }
}

//! A running Stargate: store, pool, leadership and HTTP in one process, with an orderly end.
//!
//! At the end leadership is given up at once, so that another node can lead while the pool drains: its jobs are fenced
//! by their leases and need no leader. HTTP still answers meanwhile (not ready any more, but metrics and health); then
//! it closes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use stargate_base::Tasks;
use stargate_queue::SharedStore;
use stargate_queue::pool::{Pool, PoolConfig, PoolHandle};
use stargate_web::{App as Web, Forward, Scope};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::assemble::{self, Migrate, Planned};
use crate::candidate::Candidate;
use crate::config::{self, Settings};
use crate::failure::{Failure, Result, chain};
use crate::vitals::{Leading, Vitals};
use crate::{leading, systemd};

/// A file of a publication that nobody has touched for so long, and nobody uses, belongs to a dead process.
const LEFTOVER_AGE: Duration = Duration::from_secs(60 * 60);

/// How long the start waits to learn who leads. With a lock that is free it takes milliseconds, and the first request
/// is not refused by the only node there is.
const STANDING_TIMEOUT: Duration = Duration::from_secs(3);

/// What runs in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// API and pool.
    Everything,
    /// Pool, with health and metrics but no API.
    Worker,
    /// API only.
    Api,
}

impl Role {
    /// Whether the node may lead. A worker has no API, so writes over HTTP would find no leader to take them.
    fn campaigns(self, settings: &Settings) -> bool {
        settings.leader.campaign.unwrap_or(self != Self::Worker)
    }

    /// Where others reach the API of this node.
    fn address(self, settings: &Settings, bound: SocketAddr) -> Option<String> {
        let listening = (self != Self::Worker).then(|| format!("http://{bound}"));
        settings.leader.address.clone().or(listening)
    }
}

/// A running Stargate.
pub(crate) struct Service {
    pub(crate) store: SharedStore,
    pub(crate) address: SocketAddr,
    tasks: Tasks,
    closing: CancellationToken,
    pool: Option<JoinHandle<()>>,
    candidate: Option<Candidate>,
    stop: CancellationToken,
}

impl Service {
    /// Starts everything; when this returns, jobs are taken and HTTP answers.
    pub(crate) async fn start(settings: &Settings, role: Role, stop: CancellationToken) -> Result<Self> {
        let listen = if role == Role::Worker { settings.worker.listen } else { settings.api_listen };
        config::check_listen(listen)?;
        // First, because it fails most often and leaves nothing behind.
        let listener = TcpListener::bind(listen).await.map_err(|error| {
            Failure::io(format!("cannot listen on {listen}"), &error)
                .help("choose another address with --listen 127.0.0.1:PORT or STARGATE_LISTEN; port 0 takes a free one")
        })?;
        let address = listener
            .local_addr()
            .map_err(|error| Failure::io("cannot ask the socket for its address", &error))?;
        let metrics =
            stargate_web::metrics::install(Some(settings.namespace.as_str()).filter(|name| !name.is_empty()))
                .map_err(|error| Failure::config(chain(&error)))?;
        let store = assemble::open(settings, Migrate::Yes).await?;
        let planned = assemble::announce(store.as_ref(), settings).await?;

        let (tasks, closing) = (Tasks::new(), CancellationToken::new());
        let mut service =
            Self { store: Arc::clone(&store), address, tasks, closing, pool: None, candidate: None, stop };
        let pool = match role {
            Role::Api => None,
            Role::Everything | Role::Worker => Some(service.start_working(settings).await?),
        };
        let forward = forward(settings)?;
        // The last that may fail: a lock that was taken and not given back would be missed for a while.
        service.start_leading(settings, role, planned).await?;
        let leading = service
            .candidate
            .as_ref()
            .map(|candidate| Leading { handle: candidate.leadership().clone(), over: candidate.over() });
        let vitals = Arc::new(Vitals {
            pool,
            leadership: leading,
            stop: service.stop.clone(),
            lease: settings.worker.lease,
        });
        let web = Web {
            store,
            health: Arc::clone(&vitals) as Arc<dyn stargate_web::Health>,
            metrics: metrics.clone(),
            // A worker takes no jobs in, so nobody can be pushed back.
            max_depth: settings.max_depth.filter(|_| role != Role::Worker),
            instance: settings.leader.instance.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            leadership: service.candidate.as_ref().map(|candidate| candidate.leadership().clone()),
            lock: settings.leader.backend.name().as_str(),
            forward,
        };
        service.tasks.spawn(metrics.run(service.closing.clone()));
        service
            .tasks
            .spawn(stargate_web::queue_gauges::run(Arc::clone(&service.store), service.closing.clone()));
        let scope = if role == Role::Worker { Scope::Status } else { Scope::Full };
        service.tasks.spawn(stargate_web::serve(listener, web, scope, service.closing.clone()));
        service.tasks.spawn(systemd::run(vitals, service.closing.clone()));
        Ok(service)
    }

    /// Starts what runs jobs and what they need.
    async fn start_working(&mut self, settings: &Settings) -> Result<PoolHandle> {
        let scratch = assemble::scratch(settings);
        let mut registry = assemble::registry(settings, &scratch, &self.tasks)?;
        let intake = assemble::intake(settings, &self.store, &mut registry).await?;
        let handle = self.start_pool(registry, assemble::pool_config(&settings.worker)).await?;
        self.tasks.spawn(scratch.run(settings.scratch.gc_interval, self.stop.clone()));
        self.start_sweeping(settings);
        if let Some(intake) = intake {
            // Until the pool has ended: what it finishes last is settled too.
            self.tasks.spawn(intake.run(self.stop.clone(), self.closing.clone()));
        }
        Ok(handle)
    }

    /// Begins to compete for leadership, and waits a moment to learn who leads.
    async fn start_leading(&mut self, settings: &Settings, role: Role, planned: Planned) -> Result<()> {
        if !role.campaigns(settings) {
            planned.warn_if_any();
            return Ok(());
        }
        let address = role.address(settings, self.address);
        let candidate = Candidate::start(settings, &self.store, address, self.stop.clone())?;
        let leadership = candidate.leadership().clone();
        let (sender, mut entered) = watch::channel(false);
        let store = Arc::clone(&self.store);
        self.tasks.spawn(leading::run(store, planned, leadership.clone(), sender, self.stop.clone()));
        let settled = async {
            candidate.first_standing().await;
            if leadership.is_leader() {
                // What is in the configuration is in the store when the first request comes.
                let _ = entered.wait_for(|entered| *entered).await;
            }
        };
        let settled = self.stop.run_until_cancelled(settled);
        if tokio::time::timeout(STANDING_TIMEOUT, settled).await.is_err() {
            tracing::info!(lock = candidate.place(), "not known yet who leads");
        }
        self.candidate = Some(candidate);
        Ok(())
    }

    /// Removes what publications that died have left behind, as often as scratch is looked through.
    fn start_sweeping(&self, settings: &Settings) {
        // A place that cannot be used has been complained about by whoever needs it.
        let Ok(artifacts) = assemble::artifacts(settings, &self.tasks) else { return };
        let (every, stop) = (settings.scratch.gc_interval, self.stop.clone());
        self.tasks.spawn(async move {
            loop {
                match artifacts.sweep(LEFTOVER_AGE).await {
                    Ok(0) => {}
                    Ok(removed) => tracing::info!(removed, "files of publications that died were removed"),
                    Err(error) => {
                        tracing::warn!(error = chain(&error), "old temporary files could not be removed");
                    }
                }
                if tokio::time::timeout(every, stop.cancelled()).await.is_ok() {
                    return;
                }
            }
        });
    }

    async fn start_pool(
        &mut self,
        registry: stargate_queue::handler::Registry,
        config: PoolConfig,
    ) -> Result<PoolHandle> {
        let pool = Pool::start(Arc::clone(&self.store), registry, config).await?;
        let handle = pool.handle();
        self.pool = Some(self.tasks.spawn(pool.run(self.stop.clone())));
        Ok(handle)
    }

    /// Waits for the stop, then ends everything in order.
    pub(crate) async fn ended(mut self) -> Result<()> {
        let outcome = match self.pool.take() {
            Some(pool) => pool.await.map_err(|error| {
                Failure::failed("INTERNAL", format!("the worker pool ended unexpectedly: {error}"))
                    .help("its jobs are taken over when their leases end; start it again and report this")
            }),
            None => {
                self.stop.cancelled().await;
                Ok(())
            }
        };
        self.stop.cancel();
        self.closing.cancel();
        self.tasks.join().await;
        // It has ended long ago, unless a write that took as long as it may was waited for.
        if let Some(candidate) = self.candidate.take() {
            candidate.ended().await;
        }
        outcome
    }
}

/// What passes write requests on to the leader.
fn forward(settings: &Settings) -> Result<Option<Forward>> {
    if !settings.leader.forward_writes {
        return Ok(None);
    }
    Forward::new().map(Some).map_err(|error| Failure::config(chain(&error)))
}

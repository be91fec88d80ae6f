//! A running Stargate: store, pool, leadership and HTTP in one process, with an orderly end.
//!
//! At the end leadership is given up at once, so that another node can lead while the pool drains: its jobs are fenced
//! by their leases and need no leader. HTTP still answers meanwhile (not ready any more, but metrics and health); then
//! it closes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use stargate_access::{Authority, Policy, Tokens};
use stargate_base::{Tasks, chain};
use stargate_directive::SharedDirectives;
use stargate_gateway::{Gateway, Repositories};
use stargate_queue::SharedStore;
use stargate_queue::pool::{Pool, PoolConfig, PoolHandle};
use stargate_repo::SharedPushes;
use stargate_web::{App as Web, Forward, MetricsHandle, Scope};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::assemble::{self, Migrate, Planned};
use crate::candidate::Candidate;
use crate::config::directives::Engine;
use crate::config::{self, Settings};
use crate::directing::director::Director;
use crate::directing::{self, Runner};
use crate::failure::{Exit, Failure, Result};
use crate::mirroring::shown::Shown;
use crate::mirroring::supervise::{self, Mirrors};
use crate::mirroring::{Places, letters};
use crate::recording::Recorder;
use crate::vitals::{Leading, Vitals};
use crate::{gateway, leading, systemd, temporal};

/// A file of a publication that nobody has touched for so long, and nobody uses, belongs to a dead process.
const LEFTOVER_AGE: Duration = Duration::from_secs(60 * 60);

/// How long the start waits to learn who leads. With a lock that is free it takes milliseconds, and the first request
/// is not refused by the only node there is.
const STANDING_TIMEOUT: Duration = Duration::from_secs(3);

/// What parts of this program record that the web server does not know.
pub(crate) const METRICS: stargate_web::metrics::Catalogues = &[
    stargate_directive::metrics::CATALOGUE,
    stargate_jobs::relay::metrics::CATALOGUE,
    crate::otel::CATALOGUE,
];

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
        // The others take write requests and always do: a setting that says otherwise was refused.
        self != Self::Worker || settings.leader.campaign.unwrap_or(false)
    }

    /// What it serves.
    fn scope(self) -> Scope {
        if self == Self::Worker { Scope::Status } else { Scope::Full }
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
    mirrors: Mirrors,
    /// What serves directives on Temporal, if that is what executes them.
    temporal: Option<JoinHandle<Result<()>>>,
    stop: CancellationToken,
}

impl Service {
    /// Starts everything; when this returns, jobs are taken and HTTP answers.
    pub(crate) async fn start(settings: &Arc<Settings>, role: Role, stop: CancellationToken) -> Result<Self> {
        let listen = if role == Role::Worker { settings.worker.listen } else { settings.api_listen };
        if role != Role::Worker {
            config::leader::check_campaign(settings)?;
        }
        // First, because it fails most often and leaves nothing behind.
        let (listener, address) = bind(listen).await?;
        let metrics = metrics(settings)?;
        let stores = assemble::open_all(settings, Migrate::Yes).await?;
        let policy = policy(listen, &*stores.tokens).await?;
        let store = Arc::clone(&stores.jobs);
        let planned = assemble::announce(store.as_ref(), settings).await?;

        let mut service = Self::idle(&store, address, stop);
        // What may be set wrongly comes before the first job is taken.
        service.candidate = service.candidate(settings, role)?;
        let forward = forward(settings)?;
        let repositories = match role {
            Role::Worker => None,
            Role::Everything | Role::Api => gateway::repositories_if_possible(settings)?,
        };
        let authority = Arc::new(Authority::new(Arc::clone(&stores.tokens), policy, service.tasks.clone()));
        let shown = Shown::new(settings, &service.mirrors, &stores.pushes, repositories.clone());
        let git = service
            .start_git(settings, repositories, &authority, &stores.pushes)
            .await?
            .map(|git| git.router());
        let recorder = Recorder::new(settings, Arc::clone(&stores.pushes))?;
        let pool = match role {
            Role::Api => None,
            Role::Everything | Role::Worker => {
                Some(service.start_working(settings, &stores.pushes, &stores.directives).await?)
            }
        };
        // The last that may fail: a lock that was taken and not given back would be missed for a while.
        service.start_leading(settings, planned, recorder).await?;
        let vitals = Arc::new(Vitals {
            pool,
            leadership: service.part(),
            mirrors: service.mirrors.clone(),
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
            authority: Some(authority),
            mirrors: Some(Arc::new(shown)),
            audit: Some(Arc::clone(&stores.audit)),
            directing: Some(Arc::new(Director::new(settings, &stores.directives, &service.tasks))),
            pressure: Some(assemble::pool_config(&settings.worker).pressure),
            options: settings.web.clone(),
        };
        service.tasks.spawn(metrics.run(service.closing.clone()));
        service.start_gauges(&stores.directives);
        service.tasks.spawn(stargate_web::serve(listener, web, role.scope(), git, service.closing.clone()));
        service.tasks.spawn(systemd::run(vitals, service.closing.clone()));
        Ok(service)
    }

    /// One that does nothing yet.
    fn idle(store: &SharedStore, address: SocketAddr, stop: CancellationToken) -> Self {
        Self {
            store: Arc::clone(store),
            address,
            tasks: Tasks::new(),
            closing: CancellationToken::new(),
            pool: None,
            candidate: None,
            mirrors: Mirrors::default(),
            temporal: None,
            stop,
        }
    }

    /// Starts what looks at the store for the metrics.
    fn start_gauges(&self, directives: &SharedDirectives) {
        let (store, closing) = (&self.store, &self.closing);
        self.tasks.spawn(stargate_web::queue_gauges::run(Arc::clone(store), closing.clone()));
        self.tasks.spawn(letters::run(self.mirrors.clone(), closing.clone()));
        self.tasks.spawn(directing::lag::run(Arc::clone(directives), Arc::clone(store), closing.clone()));
    }

    /// The part that this process takes in leadership.
    fn part(&self) -> Option<Leading> {
        let candidate = self.candidate.as_ref()?;
        Some(Leading { handle: candidate.leadership().clone(), over: candidate.over() })
    }

    /// Starts what runs jobs and what they need.
    async fn start_working(
        &mut self,
        settings: &Settings,
        pushes: &SharedPushes,
        directives: &SharedDirectives,
    ) -> Result<PoolHandle> {
        let scratch = assemble::scratch(settings);
        let mut registry = assemble::registry(settings, &scratch, &self.tasks)?;
        assemble::push_kinds(settings, pushes, &mut registry)?;
        Runner::new(settings, directives, &self.tasks).register(&mut registry)?;
        let intake = assemble::intake(settings, &self.store, &mut registry).await?;
        let handle = self.start_pool(registry, assemble::pool_config(&settings.worker)).await?;
        if settings.directives.engine == Engine::Temporal {
            let stop = self.stop.clone();
            self.temporal = Some(temporal::start(settings, directives, &self.tasks, stop)?);
        }
        for relay in directing::relays(settings, directives)? {
            self.tasks.spawn(relay.run(self.stop.clone()));
        }
        self.tasks.spawn(scratch.run(settings.scratch.gc_interval, self.stop.clone()));
        self.start_sweeping(settings);
        if let Some(intake) = intake {
            // Until the pool has ended: what it finishes last is settled too.
            self.tasks.spawn(intake.run(self.stop.clone(), self.closing.clone()));
        }
        Ok(handle)
    }

    /// What competes for leadership, if this process does.
    fn candidate(&self, settings: &Settings, role: Role) -> Result<Option<Candidate>> {
        let address = role.address(settings, self.address);
        let candidate = role.campaigns(settings).then(|| Candidate::new(settings, &self.store, address));
        candidate.transpose()
    }

    /// Begins to compete for leadership, and waits a moment to learn who leads.
    async fn start_leading(
        &mut self,
        settings: &Settings,
        planned: Planned,
        recorder: Recorder,
    ) -> Result<()> {
        let Some(candidate) = &mut self.candidate else {
            planned.warn_if_any();
            return Ok(());
        };
        candidate.begin(self.stop.clone())?;
        let leadership = candidate.leadership().clone();
        let (sender, mut entered) = watch::channel(false);
        let store = Arc::clone(&self.store);
        self.tasks.spawn(leading::run(store, planned, leadership.clone(), sender, self.stop.clone()));
        let (places, mirrors) = (Places::of(settings), self.mirrors.clone());
        self.tasks.spawn(supervise::run(places, leadership.clone(), mirrors, self.stop.clone()));
        self.tasks.spawn(recorder.run(leadership.clone(), self.stop.clone()));
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
        Ok(())
    }

    /// Puts the git gateway together, in a process that has repositories.
    async fn start_git(
        &self,
        settings: &Settings,
        repositories: Option<Repositories>,
        authority: &Arc<Authority>,
        pushes: &SharedPushes,
    ) -> Result<Option<Gateway>> {
        let (Some(repositories), Some(candidate)) = (repositories, &self.candidate) else { return Ok(None) };
        let leadership = candidate.leadership().clone();
        let authority = Arc::clone(authority);
        let place = (self.address, pushes);
        gateway::start(settings, repositories, authority, leadership, place, &self.tasks).await
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
        let served = match self.temporal.take() {
            Some(temporal) => temporal.await.unwrap_or_else(|error| {
                Err(Failure::failed("INTERNAL", format!("the Temporal worker ended unexpectedly: {error}")))
            }),
            None => Ok(()),
        };
        self.closing.cancel();
        self.tasks.join().await;
        // It has ended long ago, unless a write that took as long as it may was waited for.
        if let Some(candidate) = self.candidate.take() {
            candidate.ended().await;
        }
        outcome.and(served)
    }
}

fn metrics(settings: &Settings) -> Result<MetricsHandle> {
    let namespace = Some(settings.namespace.as_str()).filter(|name| !name.is_empty());
    stargate_web::metrics::install(namespace, METRICS).map_err(|error| Failure::config(chain(&error)))
}

async fn bind(listen: SocketAddr) -> Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(listen).await.map_err(|error| {
        Failure::io(format!("cannot listen on {listen}"), &error).help(
            "choose another address with --listen 127.0.0.1:PORT or STARGATE_LISTEN; port 0 takes a free one",
        )
    })?;
    let address = listener.local_addr();
    let address = address.map_err(|error| Failure::io("cannot ask the socket for its address", &error))?;
    Ok((listener, address))
}

/// Who gets in without a token. An address that others reach is refused as long as there is none.
async fn policy(listen: SocketAddr, tokens: &dyn Tokens) -> Result<Policy> {
    let any = tokens.any().await;
    let policy = any.and_then(|any| Policy::at_start(listen.ip(), any));
    policy.map_err(|error| {
        let failure = Failure::new(Exit::Usage, error.code(), chain(&error));
        match error {
            stargate_access::Error::OpenToOthers { .. } => failure
                .help("stargate token add admin --role admin\nor listen on this machine only: --listen 127.0.0.1:8080"),
            _ => failure.help("'stargate doctor' checks the store and says what to do"),
        }
    })
}

/// What passes write requests on to the leader.
fn forward(settings: &Settings) -> Result<Option<Forward>> {
    if !settings.leader.forward_writes {
        return Ok(None);
    }
    Forward::new().map(Some).map_err(|error| Failure::config(chain(&error)))
}

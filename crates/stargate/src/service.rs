//! A running Stargate: store, pool, scheduler and HTTP in one process, with an orderly end.
//!
//! At the end the pool drains first, while HTTP still answers (not ready any more, but metrics and health); then
//! HTTP closes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use stargate_base::Tasks;
use stargate_queue::pool::{Pool, PoolConfig, PoolHandle};
use stargate_queue::{SharedStore, scheduler};
use stargate_web::{App as Web, Scope};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::assemble::{self, Migrate};
use crate::config::{self, Settings};
use crate::failure::{Failure, Result, chain};
use crate::systemd;
use crate::vitals::Vitals;

/// A file of a publication that nobody has touched for so long, and nobody uses, belongs to a dead process.
const LEFTOVER_AGE: Duration = Duration::from_secs(60 * 60);

/// What runs in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// API, pool, scheduler.
    Everything,
    /// Pool and scheduler, with health and metrics but no API.
    Worker,
    /// API only.
    Api,
}

/// A running Stargate.
pub(crate) struct Service {
    pub(crate) store: SharedStore,
    pub(crate) address: SocketAddr,
    tasks: Tasks,
    closing: CancellationToken,
    pool: Option<JoinHandle<()>>,
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
        assemble::announce(store.as_ref(), settings).await?;

        let tasks = Tasks::new();
        let closing = CancellationToken::new();
        let pool_config = assemble::pool_config(&settings.worker);
        let instance = pool_config.name.clone();
        let mut service = Self { store: Arc::clone(&store), address, tasks, closing, pool: None, stop };
        let mut vitals = Vitals { pool: None, stop: service.stop.clone(), lease: settings.worker.lease };
        if role != Role::Api {
            let scratch = assemble::scratch(settings);
            let mut registry = assemble::registry(settings, &scratch, &service.tasks)?;
            let intake = assemble::intake(settings, &service.store, &mut registry).await?;
            vitals.pool = Some(service.start_pool(registry, pool_config).await?);
            service.tasks.spawn(scratch.run(settings.scratch.gc_interval, service.stop.clone()));
            service.start_sweeping(settings);
            if let Some(intake) = intake {
                // Until the pool has ended: what it finishes last is settled too.
                service.tasks.spawn(intake.run(service.stop.clone(), service.closing.clone()));
            }
        }
        let vitals = Arc::new(vitals);
        let web = Web {
            store,
            health: Arc::clone(&vitals) as Arc<dyn stargate_web::Health>,
            metrics: metrics.clone(),
            // A worker takes no jobs in, so nobody can be pushed back.
            max_depth: settings.max_depth.filter(|_| role != Role::Worker),
            instance,
            version: env!("CARGO_PKG_VERSION").to_owned(),
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
        self.tasks.spawn(scheduler::run(Arc::clone(&self.store), self.stop.clone()));
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
        outcome
    }
}

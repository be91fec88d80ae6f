//! Puts the parts together: opens the store, makes handlers of the configuration, tells the store about them.

mod runtime;

use std::path::Path;
use std::sync::Arc;

pub(crate) use runtime::{artifacts, clip_lacks, intake, pgboss, scratch, scratch_with};
use stargate_access::{Audit, SharedAudit, Tokens};
use stargate_artifact::scratch::Root;
use stargate_base::{Tasks, chain};
use stargate_directive::{Directives, SharedDirectives};
use stargate_jobs::courier::HttpCourier;
use stargate_jobs::exec::Exec;
use stargate_jobs::http::{self, Http};
use stargate_jobs::{clip, process, purge, retry_matching};
use stargate_queue::handler::{Handler, Registry};
use stargate_queue::kind::KindSpec;
use stargate_queue::limits::Limit;
use stargate_queue::pool::PoolConfig;
use stargate_queue::pressure::PressureConfig;
use stargate_queue::schedule::{self, Schedule};
use stargate_queue::{SharedStore, Store};
use stargate_repo::{Measure, Pushes, SharedPushes};
use stargate_store::postgres::{self, Postgres};
use stargate_store::sqlite::{self, Sqlite};
use tokio_util::sync::CancellationToken;

use crate::config::directives::Engine;
use crate::config::kinds::{HandlerPlan, KindPlan};
use crate::config::store_url::StoreUrl;
use crate::config::{Settings, Worker};
use crate::directing::{self, schedules::Schedules};
use crate::failure::{Failure, Result};

/// The schedule that keeps history from growing; one in `stargate.toml` with this name takes its place.
const PURGE_SCHEDULE: &str = "stargate:purge";

/// Whether opening may change the schema of a shared server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Migrate {
    /// Bring it up to date.
    Yes,
    /// Refuse an old schema.
    No,
}

/// The store in all its parts; underneath they are one.
#[derive(Debug, Clone)]
pub(crate) struct Stores {
    pub(crate) jobs: SharedStore,
    pub(crate) pushes: SharedPushes,
    pub(crate) tokens: Arc<dyn Tokens>,
    pub(crate) audit: SharedAudit,
    pub(crate) directives: SharedDirectives,
}

impl Stores {
    fn of<S: Store + Pushes + Tokens + Audit + Directives>(store: S) -> Self {
        let store = Arc::new(store);
        Self {
            jobs: store.clone(),
            pushes: store.clone(),
            tokens: store.clone(),
            audit: store.clone(),
            directives: store,
        }
    }
}

/// Opens the store for those who need only its jobs.
pub(crate) async fn open(settings: &Settings, migrate: Migrate) -> Result<SharedStore> {
    Ok(open_all(settings, migrate).await?.jobs)
}

/// Opens the store.
pub(crate) async fn open_all(settings: &Settings, migrate: Migrate) -> Result<Stores> {
    if let StoreUrl::Sqlite(path) = &settings.store {
        make_home(&settings.home, path)?;
    }
    let options = postgres::Options {
        migrate: migrate == Migrate::Yes,
        listen_url: settings.listen_dsn.as_ref().map(|dsn| dsn.reveal().to_owned()),
        ..postgres::Options::default()
    };
    open_store(&settings.store, options).await.map_err(|failure| match failure.code.as_str() {
        // The most common cause is a wrong address, so it is shown.
        "STORE_UNAVAILABLE" => failure
            .help(format!("is {} right? 'stargate doctor' checks it and says what to do", settings.store)),
        _ => failure,
    })
}

/// Opens the store of a process that lives for one push.
pub(crate) async fn open_for_hook(url: &StoreUrl) -> Result<Stores> {
    open_store(url, postgres::Options { brief: true, ..postgres::Options::default() }).await
}

async fn open_store(url: &StoreUrl, options: postgres::Options) -> Result<Stores> {
    Ok(match url {
        StoreUrl::Sqlite(path) => Stores::of(Sqlite::open(path, sqlite::Options::default()).await?),
        StoreUrl::Postgres(url) => Stores::of(Postgres::connect(url.reveal(), options).await?),
    })
}

/// The home is made when needed. A path somewhere else is not: a missing directory there is more likely a typo.
fn make_home(home: &Path, path: &Path) -> Result<()> {
    if !path.starts_with(home) {
        return Ok(());
    }
    std::fs::create_dir_all(home).map_err(|error| {
        Failure::io(format!("cannot make the directory {}", home.display()), &error)
            .help("choose a place you may write to with --home DIR or STARGATE_HOME")
    })
}

/// What the store is told about the kinds; needs nothing that only a worker has.
pub(crate) fn specs(settings: &Settings) -> Result<Vec<KindSpec>> {
    let mut built_in = Registry::new();
    purge::register(&mut built_in)?;
    retry_matching::register(&mut built_in)?;
    let mut specs = built_in.specs();
    specs.push(KindSpec::new(clip::KIND, &runtime::clip_profile(settings))?);
    specs.extend(stargate_repo::handlers::kinds()?);
    specs.push(KindSpec::new(directing::KIND, &directing::profile())?);
    for kind in &settings.plans.kinds {
        specs.push(KindSpec::new(&kind.name, &kind.profile)?);
    }
    Ok(specs)
}

/// The built-in kinds and those of the configuration, with what does their work.
pub(crate) fn registry(settings: &Settings, scratch: &Root, tasks: &Tasks) -> Result<Registry> {
    let mut registry = Registry::new();
    purge::register(&mut registry)?;
    retry_matching::register(&mut registry)?;
    match clip_lacks(settings) {
        None => {
            let profile = runtime::clip_profile(settings);
            registry.register(clip::KIND, profile, runtime::clip(settings, scratch, tasks)?)?;
        }
        // Clips wait for a worker that can make them, instead of failing here.
        Some(program) => tracing::warn!(
            program = %program.display(),
            "cannot be run, so this worker makes no clips; install ffmpeg or name it with clip.ffmpeg and clip.ffprobe"
        ),
    }
    let client = http::client().map_err(|error| Failure::input(chain(&error)))?;
    for kind in &settings.plans.kinds {
        registry.register(&kind.name, kind.profile.clone(), handler(kind, scratch, &client)?)?;
    }
    Ok(registry)
}

/// The kinds that follow a push. Repositories are measured where they are: elsewhere that is left to others.
pub(crate) fn push_kinds(settings: &Settings, pushes: &SharedPushes, registry: &mut Registry) -> Result<()> {
    let folders = crate::gateway::folders(settings)?;
    let measure = folders.map(|folders| Arc::new(folders) as Arc<dyn Measure>);
    if measure.is_none() {
        let root = settings.git.root.display();
        tracing::info!(%root, "no repositories here, so this worker measures none");
    }
    let courier = HttpCourier::new(&settings.webhooks.delivery, settings.webhooks.secrets());
    let courier = courier.map_err(|error| Failure::input(chain(&error)))?;
    Ok(stargate_repo::register(registry, pushes, measure, Some(Arc::new(courier)))?)
}

fn handler(kind: &KindPlan, scratch: &Root, client: &reqwest::Client) -> Result<Arc<dyn Handler>> {
    match &kind.handler {
        HandlerPlan::Exec { command, working_dir, env } => {
            let mut exec = Exec::new(command.clone(), scratch.clone());
            exec.working_dir.clone_from(working_dir);
            exec.env = env.iter().map(|(name, value)| (name.clone(), value.reveal().to_owned())).collect();
            exec.inherited = process::inherited(std::env::vars_os());
            Ok(Arc::new(exec))
        }
        HandlerPlan::Http { url, secret } => {
            let http = Http::new(url.as_str(), client.clone());
            let http =
                http.map_err(|error| Failure::config(format!("kind {:?}: {}", kind.name, chain(&error))))?;
            Ok(Arc::new(match secret {
                Some(secret) => http.with_secret(secret.clone()),
                None => http,
            }))
        }
    }
}

/// What the leader enters into the store: limits and schedules of the configuration.
#[derive(Debug, Clone)]
pub(crate) struct Planned {
    limits: Vec<Limit>,
    schedules: Vec<Schedule>,
    directives: Schedules,
}

impl Planned {
    /// Says that this process will not enter them, if there are any.
    pub(crate) fn warn_if_any(&self) {
        if !self.limits.is_empty() || !self.schedules.is_empty() {
            tracing::warn!(
                limits = self.limits.len(),
                schedules = self.schedules.len(),
                "limits and schedules of this configuration are not entered here: a node that may lead does it, \
                 with 'stargate up', 'stargate serve' or leader.campaign = true"
            );
        }
    }
}

/// Tells the store about the kinds, and answers what the leader is to tell it.
///
/// A schedule of a kind that nobody serves is refused here, while somebody looks.
pub(crate) async fn announce(store: &dyn Store, settings: &Settings) -> Result<Planned> {
    store.kinds_register(specs(settings)?).await?;
    let known = store.kinds().await?;
    for schedule in &settings.plans.schedules {
        if !known.iter().any(|kind| kind.name == schedule.kind) {
            let names: Vec<&str> = known.iter().map(|kind| kind.name.as_str()).collect();
            let (name, kind) = (&schedule.name, &schedule.kind);
            return Err(Failure::config(format!("schedules.{name:?}.kind is {kind:?}, which nobody serves"))
                .help(format!("known kinds: {}; describe it under [kinds.{kind:?}]", names.join(", "))));
        }
    }
    let directives = match settings.directives.scheduler {
        Engine::Embedded => Schedules::planned(&directing::Catalogue::of(settings))?,
        Engine::Temporal => Schedules::elsewhere(),
    };
    let schedules = settings.plans.schedules.iter().chain(&directives.wanted).cloned().collect();
    Ok(Planned { limits: settings.plans.limits.clone(), schedules, directives })
}

/// Enters limits and schedules, each as one write that can be repeated. Whether all were: a node that is to step down
/// does not begin another write.
pub(crate) async fn enter(
    store: &dyn Store,
    planned: &Planned,
    stop: &CancellationToken,
) -> stargate_queue::Result<bool> {
    for limit in &planned.limits {
        if stop.is_cancelled() {
            return Ok(false);
        }
        store.limit_set(limit.clone()).await?;
    }
    let existing = store.schedules().await?;
    for stale in existing.iter().filter(|schedule| planned.directives.is_stale(schedule)) {
        if stop.is_cancelled() {
            return Ok(false);
        }
        store.schedule_remove(&stale.name).await?;
    }
    for schedule in planned.schedules.iter().cloned().chain(purge_schedule(planned, &existing)) {
        if stop.is_cancelled() {
            return Ok(false);
        }
        schedule::put(store, schedule).await?;
    }
    Ok(true)
}

fn purge_schedule(planned: &Planned, existing: &[Schedule]) -> Option<Schedule> {
    let named = |schedule: &Schedule| schedule.name == PURGE_SCHEDULE;
    if existing.iter().any(named) || planned.schedules.iter().any(named) {
        return None;
    }
    Some(Schedule {
        name: PURGE_SCHEDULE.to_owned(),
        cron: "17 3 * * *".to_owned(),
        time_zone: "UTC".to_owned(),
        kind: purge::KIND.to_owned(),
        queue: "default".to_owned(),
        payload: crate::payload::empty(),
        priority: 0,
        next_at: None,
        last_at: None,
    })
}

/// The pool's configuration.
pub(crate) fn pool_config(worker: &Worker) -> PoolConfig {
    PoolConfig {
        concurrency: worker.concurrency,
        queues: worker.queues.clone(),
        heartbeat: worker.heartbeat,
        lease: worker.lease,
        poll: worker.poll,
        shutdown_timeout: worker.shutdown_timeout,
        buffer_max: worker.buffer_max,
        pressure: PressureConfig {
            high_watermark: worker.high_watermark,
            load_threshold: worker.load_threshold,
            pause_interval: worker.pause_interval,
            ..PressureConfig::default()
        },
        ..PoolConfig::default()
    }
}

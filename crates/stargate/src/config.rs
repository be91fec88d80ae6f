//! The effective settings: flags over environment over `stargate.toml` over defaults, checked as a whole.

pub(crate) mod artifacts_url;
pub(crate) mod catalogue;
pub(crate) mod directives;
pub(crate) mod file;
pub(crate) mod git;
pub(crate) mod interval;
pub(crate) mod kinds;
pub(crate) mod layer;
pub(crate) mod leader;
pub(crate) mod mirror;
pub(crate) mod otel;
pub(crate) mod runtime;
pub(crate) mod size;
pub(crate) mod store_url;
pub(crate) mod temporal;
pub(crate) mod web;
pub(crate) mod webhooks;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use file::{File, Source};
use interval::Interval;
use kinds::Plans;
use layer::{Environment, Layers, Origin, Shown};
use stargate_base::Secret;
use store_url::StoreUrl;

use crate::failure::{Failure, Result};

/// What the command line says; everything else comes from the other layers.
#[derive(Debug, Default, Clone)]
pub(crate) struct Flags {
    pub(crate) config: Option<PathBuf>,
    pub(crate) store: Option<String>,
    pub(crate) home: Option<PathBuf>,
    pub(crate) log: Option<LogFormat>,
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) workers: Option<u64>,
    pub(crate) queues: Option<Vec<String>>,
    pub(crate) engine: Option<directives::Engine>,
}

/// The file in the home that jobs are kept in unless something else is said.
pub(crate) const DEFAULT_STORE: &str = "stargate.db";

/// How log lines look: for people, or one JSON object a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    Human,
    Json,
}

/// The effective settings.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) home: PathBuf,
    pub(crate) store: StoreUrl,
    pub(crate) listen_dsn: Option<Secret>,
    pub(crate) worker: Worker,
    pub(crate) artifacts: runtime::Artifacts,
    pub(crate) clip: runtime::Clip,
    pub(crate) scratch: runtime::Scratch,
    pub(crate) pgboss: Option<runtime::Pgboss>,
    pub(crate) leader: leader::Leader,
    pub(crate) git: git::GitSettings,
    pub(crate) mirror: mirror::Mirror,
    pub(crate) webhooks: webhooks::Webhooks,
    pub(crate) directives: directives::Directives,
    #[cfg_attr(
        not(any(feature = "temporal", test)),
        expect(dead_code, reason = "checked, but nothing here can use them")
    )]
    pub(crate) temporal: temporal::Temporal,
    pub(crate) otel: otel::Otel,
    pub(crate) api_listen: SocketAddr,
    pub(crate) max_depth: Option<u64>,
    /// How the API and the page behave.
    pub(crate) web: stargate_web::Options,
    pub(crate) namespace: String,
    pub(crate) log_format: LogFormat,
    pub(crate) log_filter: String,
    pub(crate) plans: Plans,
    /// The configuration file, if there is one.
    pub(crate) file: Option<PathBuf>,
    /// Every value with where it came from.
    pub(crate) shown: Vec<Shown>,
}

/// The settings of the pool.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) concurrency: usize,
    pub(crate) queues: Vec<String>,
    pub(crate) heartbeat: Duration,
    pub(crate) lease: Duration,
    pub(crate) poll: Duration,
    pub(crate) shutdown_timeout: Duration,
    pub(crate) buffer_max: usize,
    pub(crate) high_watermark: u64,
    pub(crate) load_threshold: f64,
    pub(crate) pause_interval: Duration,
    pub(crate) keep_scratch: bool,
    pub(crate) listen: SocketAddr,
}

/// Reads all layers.
pub(crate) fn load(flags: Flags, environment: &Environment) -> Result<Settings> {
    let found = file::find(flags.config.as_deref()).map(|path| file::read(&path)).transpose()?;
    let (source, file) = match found {
        Some((source, file)) => (Some(source), file),
        None => (None, File::default()),
    };
    let mut layers = Layers { environment, source: source.as_ref(), shown: Vec::new() };
    let home =
        layers.pick(&catalogue::HOME, flags.home.clone(), &file.home, same, PathBuf::from(".stargate"))?;
    let default_store = StoreUrl::Sqlite(home.join(DEFAULT_STORE));
    let given_store = flags.store.as_deref().map(store_url::parse).transpose();
    let given_store = given_store.map_err(|problem| Failure::config(format!("--store {problem}")))?;
    // The file's text is checked here, because its type is still plain text.
    let file_store = parsed(&file.store, source.as_ref(), "store", store_url::parse)?;
    let store = layers.pick(&catalogue::STORE, given_store, &file_store, same, default_store)?;
    let listen_dsn = secret(&layers, &file.listen_dsn, "listen_dsn")?;
    let listen_dsn = layers.find(&catalogue::LISTEN_DSN, None, &listen_dsn, same)?;
    let worker = worker(&mut layers, &flags, &file)?;
    let default_listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080));
    let api_listen =
        layers.pick(&catalogue::API_LISTEN, flags.listen, &file.api.listen, same, default_listen)?;
    let max_depth = layers.find(&catalogue::MAX_DEPTH, None, &file.api.max_depth, same)?;
    let web = web::web(&mut layers, &file)?;
    let namespace = layers.pick(&catalogue::NAMESPACE, None, &file.metrics.namespace, same, String::new())?;
    let file_format = parsed(&file.log.format, source.as_ref(), "log.format", catalogue::read_log_format)?;
    let log_format = layers.pick(&catalogue::LOG_FORMAT, flags.log, &file_format, same, LogFormat::Human)?;
    let log_filter = layers.pick(&catalogue::LOG_FILTER, None, &file.log.filter, same, String::new())?;
    let attempts = layers.pick(&catalogue::MAX_ATTEMPTS, None, &file.worker.max_attempts, same, 5)?;
    let artifacts = runtime::artifacts(&mut layers, &file, &home)?;
    let clip = runtime::clip(&mut layers, &file, attempts)?;
    let scratch = runtime::scratch(&mut layers, &file, &home)?;
    let pgboss = runtime::pgboss(&mut layers, &file)?;
    let leader = leader::leader(&mut layers, &file)?;
    let git = git::git(&mut layers, &file, &home)?;
    let mirror = mirror::mirror(&mut layers, &file, &leader.instance)?;
    let webhooks = webhooks::webhooks(&mut layers, &file, worker.concurrency)?;
    let directives = directives::directives(&mut layers, &flags, &file, &store)?;
    let temporal = temporal::temporal(&mut layers, &file)?;
    let otel = otel::otel(&mut layers, &file)?;
    let mut shown = layers.shown;
    let mut plans = match &source {
        Some(source) => kinds::plans(source, &file, environment, worker.heartbeat, attempts, &mut shown)?,
        None => Plans::without_file(attempts),
    };
    plans.limits.extend(directives.limit());
    Ok(Settings {
        home,
        store,
        listen_dsn,
        worker,
        artifacts,
        clip,
        scratch,
        pgboss,
        leader,
        git,
        mirror,
        webhooks,
        directives,
        temporal,
        otel,
        api_listen,
        max_depth,
        web,
        namespace,
        log_format,
        log_filter,
        plans,
        file: source.map(|source| source.path),
        shown,
    })
}

fn worker(layers: &mut Layers<'_>, flags: &Flags, file: &File) -> Result<Worker> {
    let given = &file.worker;
    let length = |Interval(length): Interval| length;
    let concurrency = layers.pick(&catalogue::CONCURRENCY, flags.workers, &given.concurrency, same, 4)?;
    let queues = layers.pick(&catalogue::QUEUES, flags.queues.clone(), &given.queues, same, Vec::new())?;
    let heartbeat =
        layers.pick(&catalogue::HEARTBEAT, None, &given.heartbeat, length, Duration::from_secs(10))?;
    let lease = layers.pick(&catalogue::LEASE, None, &given.lease, length, heartbeat * 3)?;
    check_lease(layers, file, heartbeat, lease)?;
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let load_default = f64::from(u32::try_from(cpus).unwrap_or(u32::MAX));
    let listen_default = SocketAddr::from((Ipv4Addr::LOCALHOST, 9090));
    Ok(Worker {
        concurrency: usize::try_from(concurrency).unwrap_or(usize::MAX),
        queues,
        heartbeat,
        lease,
        poll: layers.pick(&catalogue::POLL, None, &given.poll, length, Duration::from_secs(5))?,
        shutdown_timeout: layers.pick(
            &catalogue::SHUTDOWN,
            None,
            &given.shutdown_timeout,
            length,
            Duration::from_secs(15),
        )?,
        buffer_max: usize::try_from(layers.pick(&catalogue::BUFFER, None, &given.buffer_max, same, 1000)?)
            .unwrap_or(1000),
        high_watermark: layers.pick(&catalogue::WATERMARK, None, &given.high_watermark, same, 500)?,
        load_threshold: layers.pick(&catalogue::LOAD, None, &given.load_threshold, same, load_default)?,
        pause_interval: layers.pick(
            &catalogue::PAUSE,
            None,
            &given.pause_interval,
            length,
            Duration::from_secs(3),
        )?,
        keep_scratch: layers.pick(&catalogue::KEEP_SCRATCH, None, &given.keep_scratch, same, false)?,
        listen: layers.pick(&catalogue::WORKER_LISTEN, flags.listen, &given.listen, same, listen_default)?,
    })
}

/// One lost beat must not cost a job: a lease spans at least two.
fn check_lease(layers: &Layers<'_>, file: &File, heartbeat: Duration, lease: Duration) -> Result<()> {
    if lease >= heartbeat * 2 {
        return Ok(());
    }
    let problem = format!(
        "is {}, less than two heartbeats of {}; allowed are {} and more",
        interval::show(lease),
        interval::show(heartbeat),
        interval::show(heartbeat * 2)
    );
    let help =
        "set worker.lease (LEASE_TIMEOUT_SEC) to at least twice worker.heartbeat (HEARTBEAT_INTERVAL_SEC)";
    let failure = match (layers.origin("worker.lease"), layers.source, &file.worker.lease) {
        (Some(Origin::File { .. }), Some(source), Some(given)) => {
            source.refuse(given.span(), "worker.lease", &problem)
        }
        (Some(Origin::Environment { name }), _, _) => {
            Failure::config(format!("environment variable {name}: worker.lease {problem}"))
        }
        _ => Failure::config(format!("worker.lease {problem}")),
    };
    Err(failure.help(help))
}

fn same<T>(value: T) -> T {
    value
}

/// Turns the text of a file's value into its type, pointing at it when that fails.
fn parsed<T>(
    given: &file::Given<String>,
    source: Option<&Source>,
    key: &str,
    read: fn(&str) -> Result<T, String>,
) -> Result<file::Given<T>> {
    let (Some(given), Some(source)) = (given, source) else { return Ok(None) };
    let value = read(given.get_ref()).map_err(|problem| source.refuse(given.span(), key, &problem))?;
    Ok(Some(toml::Spanned::new(given.span(), value)))
}

/// A secret of the file, which may name an environment variable instead.
fn secret(layers: &Layers<'_>, given: &file::Given<String>, key: &str) -> Result<file::Given<Secret>> {
    let (Some(given), Some(source)) = (given, layers.source) else { return Ok(None) };
    let value = layers.environment.secret(given.get_ref());
    let value = value.map_err(|problem| source.refuse(given.span(), key, &problem))?;
    Ok(Some(toml::Spanned::new(given.span(), value)))
}

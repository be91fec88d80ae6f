//! Directives on a Temporal cluster: the same files, the same store, workflows instead of jobs.

mod doctor;
mod follow;
mod host;
mod steer;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sha2::Digest as _;
use stargate_base::{Backoff, ErrorClass, Tasks, chain};
use stargate_directive::SharedDirectives;
use stargate_temporal::{Cluster, Scheduled, ServeOptions, Tls};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) use self::doctor::checks;
pub(crate) use self::follow::{begin, run};
use self::host::Host;
pub(crate) use self::steer::{WorkflowView, cancel, state, states};
use crate::config::Settings;
use crate::config::directives::Engine;
use crate::config::temporal as given;
use crate::directing::Catalogue;
use crate::failure::{Failure, Result};

/// The pauses between two tries to reach a cluster that is away.
const AWAY: Backoff =
    Backoff { first: Duration::from_secs(1), factor: 2.0, cap: Duration::from_secs(30), jitter: 0.2 };

/// Connects to the cluster of the settings.
pub(crate) async fn connect(settings: &Settings) -> Result<Cluster> {
    Ok(Cluster::connect(&place(settings, settings.leader.instance.clone())?).await?)
}

/// Where the cluster is and how to be let in, for somebody of this name.
fn place(settings: &Settings, identity: String) -> Result<stargate_temporal::Settings> {
    let given = &settings.temporal;
    Ok(stargate_temporal::Settings {
        address: given.address.clone(),
        namespace: given.namespace.clone(),
        identity,
        api_key: given.api_key.clone(),
        tls: given.tls.as_ref().map(tls).transpose()?,
    })
}

fn tls(given: &given::Tls) -> Result<Tls> {
    let read = |path: &Path, key: &str| {
        std::fs::read(path).map_err(|error| {
            Failure::config(format!("temporal.{key}: cannot read {}: {error}", path.display()))
        })
    };
    let identity = given
        .identity
        .as_ref()
        .map(|(certificate, key)| Ok::<_, Failure>((read(certificate, "certificate")?, read(key, "key")?)));
    Ok(Tls {
        ca: given.authority.as_ref().map(|path| read(path, "authority")).transpose()?,
        identity: identity.transpose()?,
        server_name: given.server_name.clone(),
    })
}

/// Serves the queues of directives until `stop`, which it also cancels if it cannot go on. A cluster that is away is
/// waited for: the rest of the node has nothing to do with it.
pub(crate) fn start(
    settings: &Settings,
    store: &SharedDirectives,
    tasks: &Tasks,
    stop: CancellationToken,
) -> Result<JoinHandle<Result<()>>> {
    let place = place(settings, settings.leader.instance.clone())?;
    let schedules = schedules(settings);
    let queues = queues(settings);
    let (host, options) = (host(settings, store, tasks), options(settings, queues.clone()));
    Ok(tasks.spawn(async move {
        let served = async {
            let Some(cluster) = reach(&place, &stop).await? else { return Ok(()) };
            if let Some(Schedules { installation, wanted, kept }) = &schedules {
                cluster.apply_schedules(installation, wanted, kept).await?;
            }
            if queues.is_empty() {
                // Another node serves them.
                stop.cancelled().await;
                return Ok(());
            }
            let stargate_temporal::Settings { address, namespace, .. } = &place;
            tracing::info!(address, namespace, queues = queues.join(","), "serving directives on Temporal");
            Ok(stargate_temporal::serve(cluster, host, options, stop.clone()).await?)
        };
        let ended = served.await;
        stop.cancel();
        ended
    }))
}

/// Connects, however often it takes; none if it is told to stop meanwhile.
async fn reach(place: &stargate_temporal::Settings, stop: &CancellationToken) -> Result<Option<Cluster>> {
    for attempt in 1.. {
        let error = match Cluster::connect(place).await {
            Ok(cluster) => return Ok(Some(cluster)),
            Err(error) if error.class() == ErrorClass::RetryableTransient => error,
            Err(error) => return Err(error.into()),
        };
        let pause = AWAY.delay(attempt);
        tracing::warn!(error = chain(&error), retry_after = ?pause, "Temporal cannot be reached yet");
        if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            break;
        }
    }
    Ok(None)
}

fn host(settings: &Settings, store: &SharedDirectives, tasks: &Tasks) -> Arc<Host> {
    Arc::new(Host::new(settings, store, tasks))
}

fn options(settings: &Settings, queues: Vec<String>) -> ServeOptions {
    ServeOptions {
        activities_max: settings.worker.concurrency,
        pages_per_activity: settings.temporal.pages_per_activity,
        graceful: settings.worker.shutdown_timeout,
        metrics: settings.temporal.metrics,
        ..ServeOptions::new(queues)
    }
}

/// The queues of directives that this worker serves.
fn queues(settings: &Settings) -> Vec<String> {
    let served = &settings.worker.queues;
    let is_served = |queue: &&String| served.is_empty() || served.contains(queue);
    settings.directives.queues.iter().filter(is_served).cloned().collect()
}

/// What the files say about schedules.
struct Schedules {
    installation: String,
    wanted: Vec<Scheduled>,
    /// Directives whose files cannot be read now.
    kept: Vec<String>,
}

/// What is to become of the cluster's schedules; none if they stay as they are.
fn schedules(settings: &Settings) -> Option<Schedules> {
    if settings.directives.scheduler != Engine::Temporal {
        tracing::info!(
            "schedules stay on the queue: directives.engine in stargate.toml decides, not --engine"
        );
        return None;
    }
    let dir = &settings.directives.dir;
    let all = match Catalogue::of(settings).all() {
        Ok(all) if dir.is_dir() => all,
        Ok(_) => {
            tracing::info!(dir = %dir.display(), "no directives here, so schedules stay as they are");
            return None;
        }
        Err(error) => {
            tracing::warn!(%error, "directives cannot be read, so their schedules stay as they are");
            return None;
        }
    };
    let installation = installation(settings);
    let (mut wanted, mut kept) = (Vec::new(), Vec::new());
    for (name, found) in all {
        match found {
            Ok(directive) => wanted.extend(directive.schedule.clone().map(|schedule| Scheduled {
                directive: directive.name,
                cron: schedule.cron,
                time_zone: schedule.time_zone,
                queue: directive.queue,
                installation: installation.clone(),
            })),
            Err(trouble) => {
                let problem = trouble.message;
                tracing::warn!(problem, "a directive is passed over; see 'stargate directive check'");
                kept.push(name);
            }
        }
    }
    Some(Schedules { installation, wanted, kept })
}

/// All nodes with the same store are one installation.
fn installation(settings: &Settings) -> String {
    let digest = sha2::Sha256::digest(settings.store.to_string());
    digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

impl From<stargate_temporal::Error> for Failure {
    fn from(error: stargate_temporal::Error) -> Self {
        Self::failed(error.code(), chain(&error))
    }
}

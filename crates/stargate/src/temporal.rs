//! Directives on a Temporal cluster: the same files, the same store, workflows instead of jobs.

mod doctor;
mod follow;
mod host;
mod steer;

use std::path::Path;
use std::sync::Arc;

use stargate_base::Tasks;
use stargate_directive::SharedDirectives;
use stargate_temporal::{Cluster, Scheduled, ServeOptions, Tls};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) use self::doctor::checks;
pub(crate) use self::follow::{begin, run};
use self::host::Host;
pub(crate) use self::steer::{WorkflowView, cancel, state, states};
use crate::config::Settings;
use crate::config::temporal as given;
use crate::directing::Catalogue;
use crate::failure::{Failure, Result, chain};

/// Connects to the cluster of the settings.
pub(crate) async fn connect(settings: &Settings) -> Result<Cluster> {
    let given = &settings.temporal;
    let tls = given.tls.as_ref().map(tls).transpose()?;
    let wanted = stargate_temporal::Settings {
        address: given.address.clone(),
        namespace: given.namespace.clone(),
        identity: settings.leader.instance.clone(),
        api_key: given.api_key.clone(),
        tls,
    };
    Ok(Cluster::connect(&wanted).await?)
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

/// Connects, and serves the queues of directives until `stop`, which it also cancels if it cannot go on.
pub(crate) async fn start(
    settings: &Settings,
    store: &SharedDirectives,
    tasks: &Tasks,
    stop: CancellationToken,
) -> Result<JoinHandle<Result<()>>> {
    let cluster = connect(settings).await?;
    apply_schedules(settings, &cluster).await?;
    let queues = queues(settings);
    tracing::info!(
        address = settings.temporal.address,
        namespace = settings.temporal.namespace,
        queues = queues.join(","),
        "serving directives on Temporal"
    );
    Ok(serve(settings, cluster, store, tasks, queues, stop))
}

/// Serves queues in the background.
fn serve(
    settings: &Settings,
    cluster: Cluster,
    store: &SharedDirectives,
    tasks: &Tasks,
    queues: Vec<String>,
    stop: CancellationToken,
) -> JoinHandle<Result<()>> {
    let options = ServeOptions {
        activities_max: settings.worker.concurrency,
        pages_per_activity: settings.temporal.pages_per_activity,
        graceful: settings.worker.shutdown_timeout,
        metrics: settings.temporal.metrics,
        ..ServeOptions::new(queues)
    };
    let host = Arc::new(Host::new(settings, store, tasks));
    tasks.spawn(async move {
        let ended = stargate_temporal::serve(cluster, host, options, stop.clone()).await;
        stop.cancel();
        Ok(ended?)
    })
}

/// The queues of directives that this worker serves.
fn queues(settings: &Settings) -> Vec<String> {
    let served = &settings.worker.queues;
    let is_served = |queue: &&String| served.is_empty() || served.contains(queue);
    settings.directives.queues.iter().filter(is_served).cloned().collect()
}

/// What the files say about schedules becomes what the cluster does.
async fn apply_schedules(settings: &Settings, cluster: &Cluster) -> Result<()> {
    let all = match Catalogue::of(settings).all() {
        Ok(all) => all,
        Err(error) => {
            tracing::warn!(%error, "directives cannot be read, so their schedules stay as they are");
            return Ok(());
        }
    };
    let (mut wanted, mut kept) = (Vec::new(), Vec::new());
    for (name, found) in all {
        match found {
            Ok(directive) => wanted.extend(directive.schedule.clone().map(|schedule| Scheduled {
                directive: directive.name,
                cron: schedule.cron,
                time_zone: schedule.time_zone,
                queue: directive.queue,
            })),
            Err(trouble) => {
                tracing::warn!(
                    problem = trouble.message,
                    "a directive is passed over; see 'stargate directive check'"
                );
                kept.push(name);
            }
        }
    }
    Ok(cluster.apply_schedules(&wanted, &kept).await?)
}

impl From<stargate_temporal::Error> for Failure {
    fn from(error: stargate_temporal::Error) -> Self {
        Self::failed(error.code(), chain(&error))
    }
}

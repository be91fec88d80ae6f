//! What jobs write to and where some of them come from: artifacts, scratch, the clip kind, a pg-boss.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use stargate_artifact::Artifacts;
use stargate_artifact::local::Local;
use stargate_artifact::s3::{self, S3};
use stargate_artifact::scratch::{Limits, Root};
use stargate_base::{ErrorClass, Tasks, chain};
use stargate_jobs::clip::{self, Clip};
use stargate_jobs::process;
use stargate_queue::handler::{Handler, Registry};
use stargate_queue::intake::{self, Intake};
use stargate_queue::{Profile, SharedStore};
use stargate_store::pgboss::{self, PgBoss};

use crate::config::Settings;
use crate::config::artifacts_url::ArtifactsUrl;
use crate::config::runtime::{Credentials, Pgboss};
use crate::failure::{Failure, Result};
use crate::program;

/// Jobs taken from another queue beyond those that run: enough to keep the workers busy, few enough that others get
/// some too.
const AHEAD_MIN: usize = 10;
const AHEAD_MAX: usize = 10_000;

/// Where artifacts are kept. What is still to be cleaned up after an upload runs in `tasks`.
pub(crate) fn artifacts(settings: &Settings, tasks: &Tasks) -> Result<Arc<dyn Artifacts>> {
    let (bucket, prefix) = match &settings.artifacts.url {
        ArtifactsUrl::Folder(path) => return Ok(Arc::new(Local::new(absolute(path)))),
        ArtifactsUrl::S3 { bucket, prefix } => (bucket, prefix),
    };
    let Some(server) = s3_server(settings, bucket, prefix) else {
        return Err(Failure::config(format!("artifacts.url is s3://{bucket}, but there are no credentials for it"))
            .help("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (artifacts.access_key_id, artifacts.secret_access_key), or artifacts.machine_role = true"));
    };
    let store = S3::new(&server, tasks.clone());
    Ok(Arc::new(store.map_err(|error| Failure::config(format!("artifacts: {}", chain(&error))))?))
}

/// How to reach the S3 server, if there are credentials for one.
fn s3_server(settings: &Settings, bucket: &str, prefix: &str) -> Option<s3::Settings> {
    let given = &settings.artifacts.s3;
    let (access_key_id, secret_access_key, session_token) = match given.credentials.as_ref()? {
        Credentials::Key { id, secret, session_token } => {
            (Some(id.reveal().to_owned()), Some(secret.clone()), session_token.clone())
        }
        Credentials::MachineRole => (None, None, None),
    };
    Some(s3::Settings {
        bucket: bucket.to_owned(),
        prefix: prefix.to_owned(),
        endpoint: given.endpoint.clone(),
        region: given.region.clone(),
        access_key_id,
        secret_access_key,
        session_token,
    })
}

/// What makes clips.
pub(crate) fn clip(settings: &Settings, scratch: &Root, tasks: &Tasks) -> Result<Arc<dyn Handler>> {
    let given = &settings.clip;
    let limits = clip::Settings {
        ffmpeg: given.ffmpeg.clone(),
        ffprobe: given.ffprobe.clone(),
        input_bytes_max: given.input_bytes_max,
        clip_max: given.clip_max,
        source_roots: given.source_dirs.iter().map(|dir| absolute(dir)).collect(),
        allow_private: given.allow_private,
        inherited: process::inherited(std::env::vars_os()),
        ..clip::Settings::default()
    };
    // Sources may lie in any bucket that the same credentials can read.
    let sources = s3_server(settings, "", "").map(|server| Arc::new(s3::Sources::new(server)));
    let clip = Clip::new(limits, artifacts(settings, tasks)?, scratch.clone(), sources);
    let clip = clip.map_err(|error| Failure::config(format!("clip: {}", chain(&error))))?;
    #[cfg(debug_assertions)]
    let clip = match signal_at::of_environment()? {
        Some(steps) => clip.with_steps(Arc::new(steps)),
        None => clip,
    };
    Ok(Arc::new(clip))
}

/// The program that clips need and that is not there.
pub(crate) fn clip_lacks(settings: &Settings) -> Option<&Path> {
    let programs = [settings.clip.ffmpeg.as_path(), settings.clip.ffprobe.as_path()];
    programs.into_iter().find(|program| !program::found(program, None))
}

/// Scratch with the configured limits; one per process, because it remembers what it keeps.
pub(crate) fn scratch(settings: &Settings) -> Root {
    let limits = Limits { age_max: settings.scratch.age_max, bytes_max: settings.scratch.bytes_max };
    scratch_with(settings, limits)
}

/// Scratch with other limits, for a look or a clean-up.
pub(crate) fn scratch_with(settings: &Settings, limits: Limits) -> Root {
    Root::new(absolute(&settings.scratch.dir), limits, settings.worker.keep_scratch)
}

/// How clips are treated.
pub(crate) fn clip_profile(settings: &Settings) -> Profile {
    Profile {
        max_attempts: settings.clip.max_attempts,
        timeout: settings.clip.timeout,
        backoff: settings.clip.backoff,
        concurrency: settings.clip.concurrency,
        ..clip::profile()
    }
}

/// The pg-boss that jobs are taken from; nothing is asked yet.
pub(crate) fn pgboss(given: &Pgboss) -> Result<PgBoss> {
    let queues = given.queues.iter().map(|(queue, _)| queue.clone()).collect();
    let options = pgboss::Options { schema: given.schema.clone(), queues, ..pgboss::Options::default() };
    PgBoss::new(given.dsn.reveal(), options)
        .map_err(|error| Failure::config(format!("sources.pgboss: {}", chain(&error))))
}

/// What takes jobs from a pg-boss, if one is configured; the handlers of their kinds are told.
///
/// A pg-boss that cannot work is refused. One that is away now is waited for.
pub(crate) async fn intake(
    settings: &Settings,
    store: &SharedStore,
    registry: &mut Registry,
) -> Result<Option<Intake>> {
    let Some(given) = &settings.pgboss else { return Ok(None) };
    let source = pgboss(given)?;
    match source.check().await {
        Ok(report) if report.queues_missing.is_empty() => {
            let queues: Vec<&str> = given.queues.iter().map(|(queue, _)| queue.as_str()).collect();
            tracing::info!(schema = given.schema, queues = queues.join(","), "jobs are taken from pg-boss");
        }
        Ok(report) => {
            let queues = report.queues_missing.join(", ");
            tracing::warn!(queues, "pg-boss has no such queues yet; jobs are taken once they are created");
        }
        Err(error) if error.class() == ErrorClass::RetryableTransient => {
            tracing::warn!(error = chain(&error), "pg-boss cannot be asked now; it is tried again");
        }
        Err(error) => {
            return Err(Failure::config(format!("sources.pgboss: {}", chain(&error)))
                .help("'stargate doctor' checks it and says what to do"));
        }
    }
    let served = &settings.worker.queues;
    let names = given.queues.iter().map(|(queue, _)| queue);
    let unserved: Vec<String> =
        names.filter(|queue| !served.is_empty() && !served.contains(queue)).cloned().collect();
    if !unserved.is_empty() {
        let queues = unserved.join(", ");
        tracing::warn!(
            queues,
            "jobs of these pg-boss queues are taken, but worker.queues leaves them to other workers"
        );
    }
    let config = intake::Config {
        kinds: given.queues.iter().cloned().collect(),
        poll: given.poll,
        ahead_max: (settings.worker.concurrency * 2).clamp(AHEAD_MIN, AHEAD_MAX),
    };
    let intake = Intake::new(Arc::clone(store), Arc::new(source), config)?;
    intake.guard(registry)?;
    Ok(Some(intake))
}

/// Programs run in other directories, so paths have to be absolute.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// For tests of the binary: sends the process a signal in the middle of a publication, which ends or pauses it.
#[cfg(debug_assertions)]
mod signal_at {
    use rustix::process::{Signal, getpid, kill_process};
    use stargate_artifact::{Step, Steps};

    use crate::failure::{Failure, Result};

    /// The second one needs somebody to send SIGCONT.
    const VARIABLES: [(&str, Signal); 2] =
        [("STARGATE_TEST_DIE_AT", Signal::KILL), ("STARGATE_TEST_PAUSE_AT", Signal::STOP)];

    const STOPPED_WITHIN: std::time::Duration = std::time::Duration::from_secs(1);

    pub(super) struct SignalAt {
        step: Step,
        signal: Signal,
    }

    /// The step that the environment names.
    pub(super) fn of_environment() -> Result<Option<SignalAt>> {
        for (variable, signal) in VARIABLES {
            let Ok(name) = std::env::var(variable) else { continue };
            let step = Step::ALL.into_iter().find(|step| step.as_str() == name);
            let known = Step::ALL.map(Step::as_str).join(", ");
            let unknown = || Failure::config(format!("{variable} is {name:?}; allowed are {known}"));
            return Ok(Some(SignalAt { step: step.ok_or_else(unknown)?, signal }));
        }
        Ok(None)
    }

    impl Steps for SignalAt {
        fn reached(&self, step: Step) {
            if step == self.step {
                // After SIGKILL nothing may run, no handler and no destructor: that is what a crash is.
                let _ = kill_process(getpid(), self.signal);
                // SIGSTOP is taken by any of the threads, and only then stops this one.
                std::thread::sleep(STOPPED_WITHIN);
            }
        }
    }
}

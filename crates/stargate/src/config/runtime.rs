//! Artifacts, clips, scratch and other queues: the effective settings, and which combinations cannot work.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use stargate_base::{Backoff, Secret};
use stargate_queue::job::check_name;

use super::artifacts_url::{self, ArtifactsUrl};
use super::catalogue::runtime as catalogue;
use super::file::{self, File};
use super::interval::{self, Interval};
use super::layer::{Layers, Origin};
use super::size::Size;
use super::{kinds, parsed, same, secret};
use crate::failure::{Failure, Result};

const GIBIBYTE: u64 = 1 << 30;
/// Executions allowed for a clip when nothing else is said.
const CLIP_ATTEMPTS: u64 = 3;

/// Where artifacts are kept.
#[derive(Debug)]
pub(crate) struct Artifacts {
    pub(crate) url: ArtifactsUrl,
    pub(crate) s3: S3,
}

/// How to reach an S3 server, for artifacts and for sources.
#[derive(Debug)]
pub(crate) struct S3 {
    pub(crate) endpoint: Option<String>,
    pub(crate) region: String,
    /// Who asks; absent where nothing is to be asked of an S3 server.
    pub(crate) credentials: Option<Credentials>,
}

/// Who asks an S3 server.
#[derive(Debug)]
pub(crate) enum Credentials {
    /// A key.
    Key { id: Secret, secret: Secret, session_token: Option<Secret> },
    /// Whoever the cloud says this machine is.
    MachineRole,
}

/// How clips are made.
#[derive(Debug)]
pub(crate) struct Clip {
    pub(crate) ffmpeg: PathBuf,
    pub(crate) ffprobe: PathBuf,
    pub(crate) input_bytes_max: u64,
    pub(crate) clip_max: Duration,
    pub(crate) source_dirs: Vec<PathBuf>,
    pub(crate) allow_private: bool,
    pub(crate) timeout: Duration,
    pub(crate) max_attempts: u16,
    pub(crate) backoff: Backoff,
    pub(crate) concurrency: Option<usize>,
}

/// Where executions leave what they wrote, and for how long.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) dir: PathBuf,
    pub(crate) age_max: Duration,
    pub(crate) bytes_max: u64,
    pub(crate) gc_interval: Duration,
}

/// A pg-boss whose jobs are run here.
#[derive(Debug)]
pub(crate) struct Pgboss {
    pub(crate) dsn: Secret,
    pub(crate) schema: String,
    /// The kind of each pg-boss queue, in the order of the file.
    pub(crate) queues: Vec<(String, String)>,
    pub(crate) poll: Duration,
}

/// Reads `[artifacts]`.
pub(super) fn artifacts(layers: &mut Layers<'_>, file: &File, home: &Path) -> Result<Artifacts> {
    let given = &file.artifacts;
    let file_url = parsed(&given.url, layers.source, "artifacts.url", artifacts_url::parse)?;
    let default_url = ArtifactsUrl::Folder(home.join("artifacts"));
    let url = layers.pick(&catalogue::ARTIFACTS, None, &file_url, same, default_url)?;
    let endpoint = layers.find(&catalogue::ENDPOINT, None, &given.endpoint, same)?;
    let region = layers.pick(&catalogue::REGION, None, &given.region, same, "us-east-1".to_owned())?;
    let id = secret(layers, &given.access_key_id, "artifacts.access_key_id")?;
    let id = layers.find(&catalogue::ACCESS_KEY_ID, None, &id, same)?;
    let key = secret(layers, &given.secret_access_key, "artifacts.secret_access_key")?;
    let key = layers.find(&catalogue::SECRET_ACCESS_KEY, None, &key, same)?;
    let token = secret(layers, &given.session_token, "artifacts.session_token")?;
    let session_token = layers.find(&catalogue::SESSION_TOKEN, None, &token, same)?;
    let role = layers.pick(&catalogue::MACHINE_ROLE, None, &given.machine_role, same, false)?;
    let credentials = match (id, key) {
        (Some(id), Some(secret)) => Some(Credentials::Key { id, secret, session_token }),
        (None, None) => role.then_some(Credentials::MachineRole),
        (Some(_), None) => {
            return Err(half_credentials(
                "artifacts.access_key_id",
                "artifacts.secret_access_key (AWS_SECRET_ACCESS_KEY)",
            ));
        }
        (None, Some(_)) => {
            return Err(half_credentials(
                "artifacts.secret_access_key",
                "artifacts.access_key_id (AWS_ACCESS_KEY_ID)",
            ));
        }
    };
    let idle = matches!(url, ArtifactsUrl::Folder(_)) && credentials.is_none();
    if let (true, Some(endpoint)) = (idle, &given.endpoint) {
        let problem =
            "has no use: artifacts.url is a folder, and there are no credentials to read s3:// sources with";
        let help = "set artifacts.url = \"s3://BUCKET/PREFIX\", or remove the endpoint";
        if let Some(source) = layers.source {
            return Err(source.refuse(endpoint.span(), "artifacts.endpoint", problem).help(help));
        }
    }
    Ok(Artifacts { url, s3: S3 { endpoint, region, credentials } })
}

fn half_credentials(given: &str, missing: &str) -> Failure {
    Failure::config(format!("{given} is given, but {missing} is not"))
        .help("both are needed to sign requests; set the other one too, or neither")
}

/// Reads `[clip]`.
///
/// The resilience document has MAX_ATTEMPTS default to 3, the queue to 5: a clip gets 3 until somebody says a number.
pub(super) fn clip(layers: &mut Layers<'_>, file: &File, attempts: u64) -> Result<Clip> {
    let given = &file.clip;
    let length = |Interval(length): Interval| length;
    let size = |Size(bytes): Size| bytes;
    let said = layers.origin("worker.max_attempts").is_some_and(|origin| *origin != Origin::Default);
    let attempts_default = if said { attempts } else { CLIP_ATTEMPTS };
    let two_minutes = Duration::from_secs(120);
    let ten_minutes = Duration::from_secs(600);
    let attempts =
        layers.pick(&catalogue::CLIP_ATTEMPTS, None, &given.max_attempts, same, attempts_default)?;
    Ok(Clip {
        ffmpeg: layers.pick(&catalogue::FFMPEG, None, &given.ffmpeg, same, "ffmpeg".into())?,
        ffprobe: layers.pick(&catalogue::FFPROBE, None, &given.ffprobe, same, "ffprobe".into())?,
        input_bytes_max: layers.pick(&catalogue::INPUT_MAX, None, &given.max_input, size, 4 * GIBIBYTE)?,
        clip_max: layers.pick(&catalogue::CLIP_MAX, None, &given.max_length, length, two_minutes)?,
        source_dirs: layers.pick(&catalogue::SOURCE_DIRS, None, &given.source_dirs, same, Vec::new())?,
        allow_private: layers.pick(&catalogue::ALLOW_PRIVATE, None, &given.allow_private, same, false)?,
        timeout: layers.pick(&catalogue::CLIP_TIMEOUT, None, &given.timeout, length, ten_minutes)?,
        max_attempts: u16::try_from(attempts).unwrap_or(3),
        backoff: clip_backoff(layers, given)?,
        concurrency: layers
            .find(&catalogue::CLIP_CONCURRENCY, None, &given.concurrency, same)?
            .and_then(|n| usize::try_from(n).ok()),
    })
}

/// The waits between attempts, with the rules of other kinds.
fn clip_backoff(layers: &mut Layers<'_>, given: &file::Clip) -> Result<Backoff> {
    let length = |Interval(length): Interval| length;
    let usual = Backoff::JOBS;
    let first = layers.pick(&catalogue::CLIP_BACKOFF, None, &given.backoff, length, usual.first)?;
    let cap_default = usual.cap.max(first);
    let cap = layers.pick(&catalogue::CLIP_BACKOFF_MAX, None, &given.backoff_max, length, cap_default)?;
    let at = given.backoff.as_ref().or(given.backoff_max.as_ref());
    match (at, layers.source) {
        (Some(at), Some(source)) if first > cap => {
            let (first, cap) = (interval::show(first), interval::show(cap));
            let problem = format!("is {first}, more than backoff_max {cap}");
            Err(source.refuse(at.span(), "clip.backoff", &problem))
        }
        _ => Ok(Backoff { first, cap, ..usual }),
    }
}

/// Reads `[scratch]`.
pub(super) fn scratch(layers: &mut Layers<'_>, file: &File, home: &Path) -> Result<Scratch> {
    let given = &file.scratch;
    let length = |Interval(length): Interval| length;
    let size = |Size(bytes): Size| bytes;
    let week = Duration::from_secs(7 * 86_400);
    let ten_minutes = Duration::from_secs(600);
    Ok(Scratch {
        dir: layers.pick(&catalogue::SCRATCH_DIR, None, &given.dir, same, home.join("scratch"))?,
        age_max: layers.pick(&catalogue::SCRATCH_AGE, None, &given.max_age, length, week)?,
        bytes_max: layers.pick(&catalogue::SCRATCH_SIZE, None, &given.max_size, size, 10 * GIBIBYTE)?,
        gc_interval: layers.pick(
            &catalogue::SCRATCH_INTERVAL,
            None,
            &given.gc_interval,
            length,
            ten_minutes,
        )?,
    })
}

/// Reads `[sources.pgboss]`.
pub(super) fn pgboss(layers: &mut Layers<'_>, file: &File) -> Result<Option<Pgboss>> {
    let given = &file.sources.pgboss;
    let length = |Interval(length): Interval| length;
    let dsn = secret(layers, &given.dsn, "sources.pgboss.dsn")?;
    let Some(dsn) = layers.find(&catalogue::PGBOSS_DSN, None, &dsn, same)? else {
        return match (&given.queues, layers.source) {
            (Some(queues), Some(source)) => {
                let problem = "are named, but not the database they are in";
                Err(source
                    .refuse(queues.span(), "sources.pgboss.queues", problem)
                    .help("add dsn = \"postgres://USER@HOST/DATABASE\", or set STARGATE_PGBOSS_DSN"))
            }
            _ => Ok(None),
        };
    };
    let scheme = ["postgres://", "postgresql://"].iter().any(|scheme| dsn.reveal().starts_with(scheme));
    if !scheme || url::Url::parse(dsn.reveal()).is_err() {
        // The text itself may hold a password, so it is not repeated (INV-8).
        let problem = "is not postgres://USER@HOST/DATABASE";
        return Err(match (layers.origin("sources.pgboss.dsn"), &given.dsn, layers.source) {
            (Some(Origin::File { .. }), Some(given), Some(source)) => {
                source.refuse(given.span(), "sources.pgboss.dsn", problem)
            }
            _ => Failure::config(format!("environment variable STARGATE_PGBOSS_DSN: {problem}")),
        });
    }
    let schema = layers.pick(&catalogue::PGBOSS_SCHEMA, None, &given.schema, same, "pgboss".to_owned())?;
    let poll = layers.pick(&catalogue::PGBOSS_POLL, None, &given.poll, length, Duration::from_secs(2))?;
    let names = layers.pick(&catalogue::PGBOSS_QUEUES, None, &given.queues, same, Vec::new())?;
    if names.is_empty() {
        return Err(Failure::config("sources.pgboss.queues names no queue, so nothing would be taken")
            .help("add queues = [\"clips\"] under [sources.pgboss]"));
    }
    let queues = queue_kinds(layers, file, names)?;
    Ok(Some(Pgboss { dsn, schema, queues, poll }))
}

/// The kind of each queue. One that this configuration does not know would only ever be refused.
fn queue_kinds(layers: &mut Layers<'_>, file: &File, names: Vec<String>) -> Result<Vec<(String, String)>> {
    let given = &file.sources.pgboss;
    let empty = BTreeMap::new();
    let mapped = given.kinds.as_ref().map_or(&empty, |kinds| kinds.get_ref());
    let refuse = |at: std::ops::Range<usize>, key: &str, problem: &str| match layers.source {
        Some(source) => source.refuse(at, key, problem),
        None => Failure::config(format!("{key} {problem}")),
    };
    let kinds_span = given.kinds.as_ref().map_or(0..0, toml::Spanned::span);
    let queues_span = given.queues.as_ref().map_or(0..0, toml::Spanned::span);
    if let Some(stranger) = mapped.keys().find(|queue| !names.contains(queue)) {
        let problem = format!("maps {stranger:?}, which is not among the queues {}", names.join(", "));
        return Err(refuse(kinds_span, "sources.pgboss.kinds", &problem));
    }
    let known: Vec<&str> =
        kinds::BUILT_IN.into_iter().chain(file.kinds.keys().map(|name| name.get_ref().as_str())).collect();
    let mut queues = Vec::with_capacity(names.len());
    for name in names {
        let (kind, at, key) = match mapped.get(&name) {
            Some(kind) => (kind.clone(), kinds_span.clone(), "sources.pgboss.kinds"),
            None => (name.clone(), queues_span.clone(), "sources.pgboss.queues"),
        };
        if check_name("kind", &kind).is_err() || !known.contains(&kind.as_str()) {
            let problem =
                format!("has the queue {name:?} run as the kind {kind:?}, which is not described here");
            let nearest = file::nearest(&kind, &known)
                .map_or_else(String::new, |near| format!("did you mean {near:?}? "));
            return Err(refuse(at, key, &problem).help(format!(
                "{nearest}known kinds: {}; describe it under [kinds.{kind:?}], or write kinds = {{ {name:?} = \"clip\" }}",
                known.join(", ")
            )));
        }
        queues.push((name, kind));
    }
    if let (Some(given), Some(source)) = (&given.kinds, layers.source) {
        let value =
            mapped.iter().map(|(queue, kind)| format!("{queue} as {kind}")).collect::<Vec<_>>().join(", ");
        let origin = Origin::File { path: source.path.clone(), line: source.line(&given.span()) };
        layers.shown.push(super::layer::Shown { key: "sources.pgboss.kinds".to_owned(), value, origin });
    }
    Ok(queues)
}

#[cfg(test)]
#[path = "runtime_tests.rs"]
mod tests;

//! What goes into a bundle. Each part is had on its own: what fails is told and does not keep the others out.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};
use stargate_access::ActionFilter;
use stargate_queue::store::{JobFilter, PauseTarget, QueueCounts, Store, WorkerRow};
use stargate_queue::{Job, State};

use super::scrub::Scrubber;
use crate::cmd::mirror::overview;
use crate::cmd::{doctor, leader};
use crate::failure::{Failure, Result};
use crate::run::App;
use crate::view::JobView;

/// Jobs of each list.
const JOBS_MAX: u32 = 200;
const GROUPS_MAX: u32 = 200;
const ACTIONS_MAX: u32 = 500;
const TERMS_MAX: u32 = 100;
/// How much of a log is taken along.
const LOG_BYTES: u64 = 2 << 20;
/// What is told of the past.
const WINDOW: Duration = Duration::from_secs(86_400);
const BUCKETS: u32 = 96;
/// Fields of a job that may hold anything.
const CONTENT: [&str; 2] = ["payload", "result"];

/// One file of a bundle.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) file: &'static str,
    pub(super) about: &'static str,
    /// What is in it, or why it could not be had.
    pub(super) content: Result<String, String>,
    json: Option<Value>,
}

impl Part {
    fn json<T: Serialize>(file: &'static str, about: &'static str, found: Result<T>) -> Self {
        let value = found
            .and_then(|value| serde_json::to_value(value).map_err(|error| Failure::input(error.to_string())));
        let (json, content) = match value {
            Ok(value) => (Some(value), Ok(String::new())),
            Err(failure) => (None, Err(failure.message)),
        };
        Self { file, about, content, json }
    }

    fn text(file: &'static str, about: &'static str, found: Result<String>) -> Self {
        Self { file, about, content: found.map_err(|failure| failure.message), json: None }
    }

    /// Takes secrets out; what is JSON is only then written.
    pub(super) fn scrub(&mut self, scrubber: &Scrubber) {
        self.content = match (self.json.take(), &self.content) {
            (Some(mut value), _) => {
                scrubber.value(&mut value);
                Ok(serde_json::to_string_pretty(&value).unwrap_or_default())
            }
            (None, Ok(text)) => Ok(scrubber.text(text)),
            (None, Err(problem)) => Err(scrubber.text(problem)),
        };
    }
}

/// Everything but the log.
pub(super) async fn all(app: &App, payloads: bool) -> Vec<Part> {
    let mut parts = vec![Part::json("about.json", "versions and where this was made", Ok(about(app)))];
    if app.remote.is_none() {
        parts.push(Part::json("doctor.json", "what the doctor finds", Ok(doctor::checks(app).await)));
        parts.push(Part::json(
            "config.json",
            "the settings, each with where it came from",
            Ok(&app.settings.shown),
        ));
    }
    match app.jobs().await {
        Ok(store) => parts.extend(of_store(app, store.as_ref(), payloads).await),
        Err(failure) => parts.push(Part::text("queues.json", "jobs per queue", Err(failure))),
    }
    parts.push(Part::json("audit.json", "who changed what", audit(app).await));
    parts.push(Part::json("mirrors.json", "how the mirrors stand", overview::mirrors(app).await));
    parts.extend(of_node(app).await);
    parts
}

fn about(app: &App) -> Value {
    let system = rustix::system::uname();
    let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "made_at": stargate_base::clock::wall(),
        "through": app.remote.as_ref().map(ToString::to_string),
        "store": app.remote.is_none().then(|| app.settings.store.to_string()),
        "host": text(system.nodename()),
        "kernel": format!("{} {}", text(system.sysname()), text(system.release())),
        "machine": text(system.machine()),
        "cpus": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        "temporal": cfg!(feature = "temporal"),
        "variables": variables(),
    })
}

/// The names of settings that come from the environment; their values stand in `config.json` where they may.
fn variables() -> Vec<String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.starts_with("STARGATE_")).collect();
    names.sort();
    names
}

async fn of_store(app: &App, store: &dyn Store, payloads: bool) -> Vec<Part> {
    let jobs = async |state: State| {
        let filter = JobFilter { states: vec![state], limit: JOBS_MAX, ..JobFilter::default() };
        let jobs = store.jobs(filter).await.map_err(Failure::from)?;
        Ok(jobs.iter().map(|job| job_view(job, payloads)).collect::<Vec<_>>())
    };
    let terms = async {
        let rows = store.terms(TERMS_MAX).await?;
        let backend = app.settings.leader.backend.name().as_str();
        Ok(leader::view::LeaderView::of_store(&rows, backend))
    };
    vec![
        Part::json("queues.json", "jobs per queue", queues(store).await),
        Part::json("workers.json", "who works", store.workers().await.map(workers).map_err(Failure::from)),
        Part::json("kinds.json", "kinds that are known", kinds(store).await),
        Part::json("limits.json", "limits per key", limits(store).await),
        Part::json("schedules.json", "schedules, without payload", schedules(store).await),
        Part::json("failures.json", "failed jobs by cause", failures(store).await),
        Part::json("jobs-failed.json", "the last failed jobs", jobs(State::Failed).await),
        Part::json("jobs-running.json", "what runs", jobs(State::Processing).await),
        Part::json("jobs-queued.json", "the last jobs that wait", jobs(State::Queued).await),
        Part::json("activity.json", "what ended within a day", activity(store).await),
        Part::json("leader.json", "terms of leadership", terms.await),
    ]
}

async fn failures(store: &dyn Store) -> Result<impl Serialize> {
    Ok(store.failures(GROUPS_MAX).await?)
}

async fn activity(store: &dyn Store) -> Result<impl Serialize> {
    Ok(store.activity(WINDOW, BUCKETS).await?)
}

async fn queues(store: &dyn Store) -> Result<Value> {
    let of = |counts: &QueueCounts| {
        json!({
            "queue": counts.queue, "ready": counts.ready, "delayed": counts.delayed, "blocked": counts.blocked,
            "processing": counts.processing, "failed": counts.failed, "paused": counts.paused,
        })
    };
    let (queues, oldest, pauses) = tokio::try_join!(store.queues(), store.oldest_ready(), store.pauses())?;
    let kinds = pauses.into_iter().filter_map(|target| match target {
        PauseTarget::Kind(kind) => Some(kind),
        PauseTarget::Queue(_) => None,
    });
    Ok(json!({
        "queues": queues.iter().map(of).collect::<Vec<_>>(),
        "oldest_ready_sec": oldest.map(|age| age.as_secs_f64()),
        "paused_kinds": kinds.collect::<Vec<_>>(),
    }))
}

fn workers(rows: Vec<WorkerRow>) -> Value {
    let of = |row: &WorkerRow| {
        json!({
            "name": row.name, "alive": row.alive, "kinds": row.kinds, "queues": row.queues,
            "concurrency": row.concurrency, "holding": row.holding, "started_at": row.started_at,
            "beat_at": row.beat_at,
        })
    };
    rows.iter().map(of).collect()
}

async fn kinds(store: &dyn Store) -> Result<Value> {
    let kinds = store.kinds().await?;
    Ok(kinds
        .iter()
        .map(|kind| json!({ "kind": kind.name, "max_attempts": kind.max_attempts, "max_crashes": kind.max_crashes }))
        .collect())
}

async fn limits(store: &dyn Store) -> Result<Value> {
    let limits = store.limits().await?;
    let of = |limit: &stargate_queue::limits::Limit| {
        json!({
            "pattern": limit.pattern, "concurrency": limit.concurrency,
            "rate": limit.rate.map(|rate| rate.to_string()), "weight": limit.weight,
        })
    };
    Ok(limits.iter().map(of).collect())
}

async fn schedules(store: &dyn Store) -> Result<Value> {
    let schedules = store.schedules().await?;
    let of = |schedule: &stargate_queue::schedule::Schedule| {
        json!({
            "name": schedule.name, "cron": schedule.cron, "time_zone": schedule.time_zone, "kind": schedule.kind,
            "queue": schedule.queue, "next_at": schedule.next_at, "last_at": schedule.last_at,
        })
    };
    Ok(schedules.iter().map(of).collect())
}

/// A job; without what may hold anything, unless that was asked for.
fn job_view(job: &Job, payloads: bool) -> Value {
    let mut view = serde_json::to_value(JobView::from(job)).unwrap_or_default();
    if payloads {
        return view;
    }
    let sizes = [Some(job.payload.get().len()), job.result.as_ref().map(|result| result.get().len())];
    for (field, bytes) in CONTENT.into_iter().zip(sizes) {
        view[field] = bytes.map_or(Value::Null, |bytes| json!({ "omitted_bytes": bytes }));
    }
    if let Some(error) = view.get_mut("error").and_then(Value::as_object_mut) {
        error.remove("detail");
    }
    view
}

async fn audit(app: &App) -> Result<Value> {
    let filter = ActionFilter { limit: ACTIONS_MAX, ..ActionFilter::default() };
    let actions = crate::cmd::audit::actions(app, filter).await?;
    serde_json::to_value(actions).map_err(|error| Failure::input(error.to_string()))
}

/// What the node itself says. Beside the store it may not run, which the manifest then tells.
async fn of_node(app: &App) -> Vec<Part> {
    let node = match app.node() {
        Ok(node) => node,
        Err(failure) => return vec![Part::text("metrics.txt", "what the node counts", Err(failure))],
    };
    let ask = async |path: &str| node.get(path).await.map(|answer| answer.plain());
    let mut parts = vec![
        Part::text("healthz.json", "whether the node is well", ask("/healthz").await),
        Part::text("readyz.json", "whether the node can serve", ask("/readyz").await),
        Part::text("metrics.txt", "what the node counts", ask("/metrics").await),
    ];
    if app.remote.is_some() {
        let ask = async |path: &str| node.read::<Value>(&[path], &[]).await;
        parts.push(Part::json("stats.json", "how it goes", ask("stats").await));
        parts.push(Part::json("whoami.json", "who asked", ask("whoami").await));
        parts.push(Part::json("leader-now.json", "who leads, as the node sees it", ask("leader").await));
    }
    parts
}

/// The end of a log.
pub(super) fn log(path: &Path) -> Part {
    let read = || {
        let mut file = std::fs::File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LOG_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(LOG_BYTES).read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        // The first line may have lost its beginning.
        Ok(match length > LOG_BYTES {
            true => text.split_once('\n').map_or(String::new(), |(_, rest)| rest.to_owned()),
            false => text,
        })
    };
    let found = read()
        .map_err(|error: std::io::Error| Failure::io(format!("cannot read {}", path.display()), &error));
    Part::text("log.txt", "the last lines of the log", found)
}

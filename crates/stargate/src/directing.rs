//! Directives on the queue: a run is a job, and each page a checkpoint.

pub(crate) mod director;
pub(crate) mod lag;
pub(crate) mod schedules;
mod signal_at;
pub(crate) mod sources;
pub(crate) mod steer;
pub(crate) mod view;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use stargate_base::{ErrorClass, Tasks, chain};
use stargate_directive::file::{self, Directive, Problem};
use stargate_directive::source::Sources;
use stargate_directive::steps::{self, Assignment, Ended, Trouble};
use stargate_directive::{End, Outcome, RunId, SharedDirectives};
use stargate_jobs::relay::{self, Relay, Topic};
use stargate_queue::context::Context;
use stargate_queue::handler::{Failure, Handler, HandlerResult, Registry};
use stargate_queue::job::ATTEMPTS_MAX;
use stargate_queue::kind::Detail;
use stargate_queue::{JobId, NewJob, Profile, State};

use crate::config::Settings;
use crate::config::directives::{Destination, Engine, OutboxPlan, limit_key};
use crate::failure::{Failure as Failed, Result};

/// The kind of a run's job.
pub(crate) const KIND: &str = "directive:run";
/// There is no such directive.
const DIRECTIVE_MISSING: &str = "DIRECTIVE_MISSING";
/// The directive's file is wrong.
const DIRECTIVE_INVALID: &str = "DIRECTIVE_INVALID";

/// Nobody goes on with the run.
const RUN_ABANDONED: &str = "RUN_ABANDONED";
/// Runs of a directive that are looked through for such.
const ORPHANS_MAX: u32 = 20;

/// The payload of a run's job.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Payload {
    /// The directive.
    pub(crate) directive: String,
    /// Whether a schedule asked. Then the job only enqueues the run, under the limits of its tenant, unless one goes on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) scheduled: bool,
}

/// How runs are treated. Their own policy decides about waits; the queue only carries them out, as often as it can.
pub(crate) fn profile() -> Profile {
    Profile {
        max_attempts: ATTEMPTS_MAX,
        max_crashes: ATTEMPTS_MAX,
        timeout: Duration::from_secs(7 * 86_400),
        timeline: Detail::States,
        ..Profile::default()
    }
}

/// The job of a run that somebody asks for. While one is unfinished, it stands for every other.
pub(crate) fn job(directive: &Directive) -> Result<NewJob> {
    let payload = Payload { directive: directive.name.clone(), scheduled: false };
    Ok(NewJob {
        queue: directive.queue.clone(),
        unique_key: Some(format!("{KIND}:{}", directive.name)),
        limit_key: Some(limit_key(&directive.tenant)),
        ..NewJob::new(KIND, crate::payload::of(&payload)?)
    })
}

/// Where directives lie, and what they may name.
#[derive(Debug, Clone)]
pub(crate) struct Catalogue {
    dir: PathBuf,
    queues: Vec<String>,
}

impl Catalogue {
    pub(crate) fn of(settings: &Settings) -> Self {
        let given = &settings.directives;
        Self { dir: given.dir.clone(), queues: given.queues.clone() }
    }

    /// A directive by its name.
    pub(crate) fn find(&self, name: &str) -> Result<Directive, Trouble> {
        let is_name = !name.is_empty() && !name.contains(['/', '\\', '\0']) && !name.starts_with('.');
        let path = self.dir.join(format!("{name}.toml"));
        if !is_name || !path.is_file() {
            let message = format!("there is no directive {name:?} in {}", self.dir.display());
            return Err(Trouble::new(ErrorClass::Fatal, DIRECTIVE_MISSING, message));
        }
        file::read(&path, &self.queues).map_err(|problems| invalid(&problems))
    }

    /// All there are by their names; what is wrong with some of them is for `directive check`.
    pub(crate) fn all(&self) -> std::io::Result<Vec<(String, Result<Directive, Trouble>)>> {
        let files = match file::files(&self.dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            files => files?,
        };
        let read = |path: &PathBuf| {
            let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
            (name, file::read(path, &self.queues).map_err(|problems| invalid(&problems)))
        };
        Ok(files.iter().map(read).collect())
    }
}

fn invalid(problems: &[Problem]) -> Trouble {
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    Trouble::new(ErrorClass::Fatal, DIRECTIVE_INVALID, lines.join("; "))
}

/// What delivers announcements, for each topic that has a destination.
pub(crate) fn relays(settings: &Settings, store: &SharedDirectives) -> Result<Vec<Relay>> {
    let relay = |plan: &OutboxPlan| {
        let mut how = relay::Settings::default();
        let to = match plan.to.clone() {
            Destination::Http { url, secret, allow_private } => {
                how.allow_private = allow_private;
                relay::Destination::Http { url, secret }
            }
            Destination::Notify { channel } => relay::Destination::Notify { channel },
            Destination::File { path } => relay::Destination::File { path },
        };
        let topic = Topic { name: plan.topic.clone(), to };
        Relay::new(topic, &how, Arc::clone(store), &settings.leader.instance)
            .map_err(|error| Failed::config(format!("outbox.{:?}: {}", plan.topic, chain(&error))))
    };
    settings.directives.outbox.iter().map(relay).collect()
}

/// Executes runs.
pub(crate) struct Runner {
    pub(crate) catalogue: Catalogue,
    pub(crate) store: SharedDirectives,
    pub(crate) sources: Arc<dyn Sources>,
    pub(crate) worker: String,
    pub(crate) tasks: Tasks,
}

impl Runner {
    /// A runner of these settings.
    pub(crate) fn new(settings: &Settings, store: &SharedDirectives, tasks: &Tasks) -> Self {
        Self {
            catalogue: Catalogue::of(settings),
            store: Arc::clone(store),
            sources: Arc::new(sources::Outside::new(settings)),
            worker: settings.leader.instance.clone(),
            tasks: tasks.clone(),
        }
    }

    /// Registers what executes runs.
    pub(crate) fn register(self, registry: &mut Registry) -> stargate_queue::Result<()> {
        registry.register(KIND, profile(), Arc::new(self))
    }

    /// What an execution of a directive needs.
    pub(crate) fn assignment(
        &self,
        directive: Directive,
        run: RunId,
        engine: Engine,
        attempt: u32,
    ) -> Result<Assignment, Trouble> {
        let mapping = directive.mapping().map_err(|problem| invalid(&[problem]))?;
        Ok(Assignment {
            workflow_id: format!("directive:{}", directive.name),
            directive: Arc::new(directive),
            mapping: Arc::new(mapping),
            store: Arc::clone(&self.store),
            sources: Arc::clone(&self.sources),
            run,
            engine: engine.as_str(),
            worker: self.worker.clone(),
            attempt,
            tasks: self.tasks.clone(),
            watch: signal_at::of_environment(),
            is_last_try: engine == Engine::Embedded && attempt >= u32::from(ATTEMPTS_MAX),
            pages_max: None,
            page_size: None,
            progress: None,
        })
    }

    /// Runs whose jobs ended without them, because somebody cancelled a job that waited or the queue gave it up: nobody
    /// goes on with them, and their leases would only be in the way.
    async fn end_orphans(&self, context: &Context, directive: &str, ours: &RunId) {
        let Ok(runs) = self.store.runs(Some(directive), None, ORPHANS_MAX).await else { return };
        for run in runs
            .iter()
            .filter(|run| run.outcome.is_none() && run.id != *ours && run.engine == Engine::Embedded.as_str())
        {
            let Ok(job) = run.id.0.parse::<JobId>() else { continue };
            let end = match context.store().job(job).await {
                Ok(Some(job)) if job.state == State::Cancelled => {
                    End { outcome: Outcome::Cancelled, error: None }
                }
                Ok(Some(job)) if !job.state.is_finished() => continue,
                Ok(_) => {
                    let error = Some(format!("{RUN_ABANDONED}: the job of the run ended without it"));
                    End { outcome: Outcome::Failed, error }
                }
                Err(_) => continue,
            };
            if let Err(error) = steps::end_abandoned(&self.store, run, end).await {
                tracing::warn!(run_id = %run.id, %error, "a run that nobody goes on with could not be ended");
            }
        }
    }

    /// A run whose directive is gone or broken cannot go on: it fails, if it had begun.
    async fn without_directive(&self, run: &RunId, trouble: Trouble) -> Failure {
        tracing::error!(agent = "meta-worker", severity = "FATAL", run_id = %run, code = trouble.code,
            error = trouble.message, "the directive cannot be read");
        let end =
            End { outcome: Outcome::Failed, error: Some(format!("{}: {}", trouble.code, trouble.message)) };
        let ended = match self.store.run(run).await {
            Ok(Some(begun)) => steps::end_abandoned(&self.store, &begun, end).await.map(drop),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        match ended {
            Ok(()) => failure(trouble, None),
            // Then the outcome is still to be recorded.
            Err(error) => Failure::transient(chain(&error)),
        }
    }
}

#[async_trait]
impl Handler for Runner {
    async fn run(&self, context: Context) -> HandlerResult {
        let payload: Payload = serde_json::from_str(context.payload().get()).map_err(|error| {
            Failure::new("PAYLOAD_INVALID", ErrorClass::ValidationFailure, error.to_string())
        })?;
        let run = RunId(context.job().to_string());
        let found = self.catalogue.find(&payload.directive);
        let found = match found {
            Ok(directive) if payload.scheduled => return fire(&context, &directive).await,
            found => found,
        };
        self.end_orphans(&context, &payload.directive, &run).await;
        let assignment = found.and_then(|found| {
            self.assignment(found, run.clone(), Engine::Embedded, u32::from(context.attempt()))
        });
        let assignment = match assignment {
            Ok(assignment) => assignment,
            Err(trouble) => return Err(self.without_directive(&run, trouble).await),
        };
        let asked = context.clone();
        let is_cancel = move || asked.is_cancelled();
        match steps::execute(assignment, context.stopping(), &is_cancel).await {
            Ended::Finished(run) => Ok(serde_json::value::to_raw_value(&view::run(&run)).ok()),
            other => Err(wait_or_fail(other)),
        }
    }
}

/// Enqueues the run that a schedule asks for. One that is unfinished stands for it.
async fn fire(context: &Context, directive: &Directive) -> HandlerResult {
    let job = job(directive).map_err(|failure| Failure::fatal(failure.message))?;
    let accepted = context.enqueue(vec![job]).await?;
    let answer = accepted.first().map(|run| serde_json::json!({ "run_id": run.id, "skipped": run.existing }));
    tracing::info!(agent = "meta-worker", directive = directive.name, answer = ?answer, "a schedule asks for a run");
    Ok(answer.and_then(|answer| serde_json::value::to_raw_value(&answer).ok()))
}

fn wait_or_fail(ended: Ended) -> Failure {
    match ended {
        Ended::Wait { after, trouble } => failure(trouble, Some(after)),
        Ended::Failed(trouble) => failure(trouble, None),
        Ended::Finished(_) | Ended::Stopped | Ended::More(_) => {
            Failure::transient("the execution was told to stop").with_retry_after(Duration::ZERO)
        }
    }
}

fn failure(trouble: Trouble, after: Option<Duration>) -> Failure {
    let failure = Failure::new(trouble.code, trouble.class, trouble.message);
    match after {
        Some(after) => failure.with_retry_after(after),
        None => failure,
    }
}

//! Why is a job not running now, and which command would change that?

use crate::error::{Error, Result};
use crate::job::{Job, JobId, Stage, State};
use crate::pool;
use crate::pressure::PressureConfig;
use crate::store::{PauseTarget, Store};

/// The chain of reasons, most decisive first.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// The job.
    pub job: JobId,
    /// Its state.
    pub state: State,
    /// One line that answers the question.
    pub summary: String,
    /// What holds it back; empty when it can start any moment or has ended.
    pub reasons: Vec<Reason>,
}

/// One thing that holds a job back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// What.
    pub text: String,
    /// The command that would change it, where there is one.
    pub command: Option<String>,
}

impl Reason {
    fn new(text: impl Into<String>, command: Option<String>) -> Self {
        Self { text: text.into(), command }
    }
}

/// Looks at everything that can hold a job back, except for pressure.
pub async fn explain(store: &dyn Store, id: JobId) -> Result<Explanation> {
    look(store, id, None).await
}

/// Looks also at pressure, which workers feel and the store does not know: as it is on this machine, with the
/// settings that the workers are assumed to have.
pub async fn explain_under(store: &dyn Store, id: JobId, pressure: &PressureConfig) -> Result<Explanation> {
    look(store, id, Some(pressure)).await
}

async fn look(store: &dyn Store, id: JobId, pressure: Option<&PressureConfig>) -> Result<Explanation> {
    let job = store.job(id).await?.ok_or_else(|| Error::NotFound { what: "job", name: id.to_string() })?;
    let (summary, reasons) = match (job.state, job.stage) {
        (State::Processing, _) => (running(&job), Vec::new()),
        (State::Queued, stage) => waiting(store, &job, stage, pressure).await?,
        (state, _) => (ended(&job, state), ended_reasons(&job)),
    };
    Ok(Explanation { job: id, state: job.state, summary, reasons })
}

fn running(job: &Job) -> String {
    let worker = job.worker.as_deref().unwrap_or("a worker");
    let lease =
        job.lease_expires_at.map_or_else(String::new, |at| format!("; its lease holds until {at:.0}"));
    let cancel = if job.cancel_requested { "; its cancellation has been requested" } else { "" };
    format!("it is running: attempt {} of {} on {worker}{lease}{cancel}", job.attempt_count, job.max_attempts)
}

fn ended(job: &Job, state: State) -> String {
    let at = job.finished_at.map_or_else(String::new, |at| format!(" at {at:.0}"));
    let error = job.error.as_ref().filter(|_| state != State::Done);
    let why = error.map_or_else(String::new, |error| format!(" with {}: {}", error.code, error.message));
    format!("it has ended: {state}{at}{why}")
}

fn ended_reasons(job: &Job) -> Vec<Reason> {
    if job.state != State::Failed {
        return Vec::new();
    }
    vec![Reason::new(
        "a failed job runs again only when it is told to",
        Some(format!("stargate job retry {}", job.id)),
    )]
}

async fn waiting(
    store: &dyn Store,
    job: &Job,
    stage: Option<Stage>,
    pressure: Option<&PressureConfig>,
) -> Result<(String, Vec<Reason>)> {
    let mut reasons = Vec::new();
    if stage == Some(Stage::Blocked) {
        for (parent, state) in
            store.parents(job.id).await?.into_iter().filter(|(_, state)| *state != State::Done)
        {
            reasons.push(Reason::new(
                format!("it waits for job {parent}, which is {state}"),
                Some(format!("stargate explain {parent}")),
            ));
        }
    }
    if stage == Some(Stage::Blocked) && reasons.is_empty() {
        let text = "it came from another queue, which has yet to confirm that it is ours";
        reasons.push(Reason::new(text.to_owned(), Some("stargate doctor".to_owned())));
    }
    let now = store.now().await?;
    if job.run_at > now {
        let why = if job.attempt_count > 0 { "backs off" } else { "is not due" };
        let seconds = job.run_at.duration_since(now).as_secs();
        reasons.push(Reason::new(format!("it {why} until {:.0} (in {seconds} s)", job.run_at), None));
    }
    pauses(store, job, &mut reasons).await?;
    let serving = workers(store, job, &mut reasons).await?;
    limits(store, job, &mut reasons).await?;
    if let Some(config) = pressure.filter(|_| job.run_at <= now && stage != Some(Stage::Blocked)) {
        under_pressure(store, config, &serving, &mut reasons).await?;
    }
    let summary = match reasons.first() {
        Some(reason) => format!("it waits: {}", reason.text),
        None => {
            "it can start any moment: a worker takes it as soon as it has a free slot and no more urgent job"
                .to_owned()
        }
    };
    Ok((summary, reasons))
}

async fn pauses(store: &dyn Store, job: &Job, reasons: &mut Vec<Reason>) -> Result<()> {
    for pause in store.pauses().await? {
        match pause {
            PauseTarget::Queue(queue) if queue == job.queue => {
                reasons.push(Reason::new(
                    format!("queue {queue} is paused"),
                    Some(format!("stargate queue resume {queue}")),
                ));
            }
            PauseTarget::Kind(kind) if kind == job.kind => {
                let command = format!("stargate queue resume --kind {kind}");
                reasons.push(Reason::new(format!("kind {kind} is paused"), Some(command)));
            }
            _ => {}
        }
    }
    Ok(())
}

/// What stands in the way on the side of the workers; the names of those that serve the job.
async fn workers(store: &dyn Store, job: &Job, reasons: &mut Vec<Reason>) -> Result<Vec<String>> {
    let workers: Vec<_> = store.workers().await?.into_iter().filter(|worker| worker.alive).collect();
    if workers.is_empty() {
        reasons.push(Reason::new("no worker is running", Some("stargate worker".to_owned())));
        return Ok(Vec::new());
    }
    let serving: Vec<_> = workers
        .iter()
        .filter(|worker| worker.kinds.contains(&job.kind))
        .filter(|worker| worker.queues.is_empty() || worker.queues.contains(&job.queue))
        .collect();
    if serving.is_empty() {
        let text = format!(
            "none of the {} running workers serves kind {} in queue {}",
            workers.len(),
            job.kind,
            job.queue
        );
        reasons.push(Reason::new(text, None));
    } else if serving.iter().all(|worker| worker.holding >= worker.concurrency as u64) {
        let text = format!("all slots of the {} workers that serve it are taken", serving.len());
        reasons.push(Reason::new(text, Some("stargate worker --workers N".to_owned())));
    }
    Ok(serving.into_iter().map(|worker| worker.name.clone()).collect())
}

/// Workers are processes of their own and do not tell the store that they pause. On this machine they read the
/// same load as we do; about other machines only the depth is known.
async fn under_pressure(
    store: &dyn Store,
    config: &PressureConfig,
    serving: &[String],
    reasons: &mut Vec<Reason>,
) -> Result<()> {
    let watermark = config.high_watermark;
    if serving.is_empty() || store.depth(watermark.saturating_add(1)).await? <= watermark {
        return Ok(());
    }
    let here = pool::host_prefix();
    let local: Vec<&str> =
        serving.iter().filter(|name| name.starts_with(&here)).map(String::as_str).collect();
    let load = config.load.read();
    let pause = config.pause_interval.as_secs_f64();
    if !local.is_empty() && load > config.load_threshold {
        let text = format!(
            "{} on this machine pauses {pause} s before each claim, until the load, {load:.2}, is at most {} or at \
             most {watermark} jobs could run",
            local.join(", "),
            config.load_threshold,
        );
        reasons.push(Reason::new(text, Some("stargate config show".to_owned())));
    } else if local.len() < serving.len() {
        let text = format!(
            "over {watermark} jobs could run: a worker whose machine has a load over its worker.load_threshold \
             pauses {pause} s before each claim"
        );
        reasons.push(Reason::new(text, None));
    }
    Ok(())
}

async fn limits(store: &dyn Store, job: &Job, reasons: &mut Vec<Reason>) -> Result<()> {
    let Some(key) = job.limit_key.as_deref() else { return Ok(()) };
    let Some(limit) = store.limit_state(key).await? else { return Ok(()) };
    if let Some(most) = limit.concurrency.filter(|most| limit.running >= *most) {
        // The most specific limit holds alone, so the command must carry over the rest of this one.
        let rate = limit.rate.map_or_else(String::new, |rate| format!(" --rate {rate}"));
        let command =
            format!("stargate limit set {key:?} --concurrency {}{rate} --weight {}", most + 1, limit.weight);
        reasons.push(Reason::new(
            format!("limit key {key} runs {} of at most {most}", limit.running),
            Some(command),
        ));
    }
    if let (Some(rate), Some(tokens)) = (limit.rate, limit.tokens)
        && tokens < 1.0
    {
        reasons.push(Reason::new(format!("limit key {key} has used up its rate of {rate}"), None));
    }
    Ok(())
}

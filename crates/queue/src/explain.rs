//! Why is a job not running now, and which command would change that?

use crate::error::{Error, Result};
use crate::job::{Job, JobId, Stage, State};
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

/// Looks at everything that can hold a job back.
pub async fn explain(store: &dyn Store, id: JobId) -> Result<Explanation> {
    let job = store.job(id).await?.ok_or_else(|| Error::NotFound { what: "job", name: id.to_string() })?;
    let (summary, reasons) = match (job.state, job.stage) {
        (State::Processing, _) => (running(&job), Vec::new()),
        (State::Queued, stage) => waiting(store, &job, stage).await?,
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

async fn waiting(store: &dyn Store, job: &Job, stage: Option<Stage>) -> Result<(String, Vec<Reason>)> {
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
    let now = store.now().await?;
    if job.run_at > now {
        let why = if job.attempt_count > 0 { "backs off" } else { "is not due" };
        let seconds = job.run_at.duration_since(now).as_secs();
        reasons.push(Reason::new(format!("it {why} until {:.0} (in {seconds} s)", job.run_at), None));
    }
    pauses(store, job, &mut reasons).await?;
    workers(store, job, &mut reasons).await?;
    limits(store, job, &mut reasons).await?;
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

async fn workers(store: &dyn Store, job: &Job, reasons: &mut Vec<Reason>) -> Result<()> {
    let workers: Vec<_> = store.workers().await?.into_iter().filter(|worker| worker.alive).collect();
    if workers.is_empty() {
        reasons.push(Reason::new("no worker is running", Some("stargate worker".to_owned())));
        return Ok(());
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

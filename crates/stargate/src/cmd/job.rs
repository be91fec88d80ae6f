//! `stargate job …`: look at jobs and steer them.

pub(crate) mod bulk;
mod list;
pub(crate) mod select;
mod steer;

use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use stargate_jobs::clip;
use stargate_queue::store::{PAGE_MAX, Store};
use stargate_queue::{Error, Job, JobId, State};

use super::enqueue::Enqueue;
use crate::argument;
use crate::config::{Settings, interval, size};
use crate::failure::Result;
use crate::follow::{self, Audience};
use crate::output::{self, Output};
use crate::run::App;
use crate::view::{JobView, event_in_words};

/// `job …`
#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// Enqueue a job
    Enqueue(Enqueue),
    /// List jobs, newest first
    List(list::List),
    /// Show one job
    Show(One),
    /// Show the timeline of a job
    Events(One),
    /// Follow jobs live until they end
    Watch(Watch),
    /// Have failed jobs run again: named ones, or all that match
    Retry(steer::Retry),
    /// End waiting jobs, ask running ones to stop: named ones, or all that match
    Cancel(steer::Cancel),
}

/// One job.
#[derive(Debug, Args)]
pub(crate) struct One {
    /// The job's id
    #[arg(value_parser = argument::job_id)]
    job: JobId,
}

/// `job watch`
#[derive(Debug, Args)]
#[command(after_help = "Exits 0 when all are done, 1 when one failed or was cancelled, 10 after --timeout.")]
pub(crate) struct Watch {
    /// Ids of jobs
    #[arg(required = true, value_name = "JOB", value_parser = argument::job_id)]
    jobs: Vec<JobId>,
    /// Give up after so long and exit 10
    #[arg(long, value_name = "TIME", value_parser = interval::parse)]
    timeout: Option<Duration>,
}

impl JobCommand {
    /// Runs the command.
    pub(crate) async fn run(&self, app: &App) -> Result<()> {
        match self {
            Self::Enqueue(enqueue) => enqueue.run(app).await,
            Self::List(list) => list.run(app.jobs().await?.as_ref(), app.out).await,
            Self::Show(one) => show(app.jobs().await?.as_ref(), one.job, app).await,
            Self::Events(one) => events(app.jobs().await?.as_ref(), one.job, app.out).await,
            Self::Watch(watch) => {
                let (store, audience) =
                    (app.jobs().await?, if app.out.json { Audience::Program } else { Audience::Person });
                let jobs =
                    follow::follow(store.as_ref(), &watch.jobs, watch.timeout, audience, app.out).await?;
                follow::verdict(&jobs)
            }
            Self::Retry(retry) => retry.run(app).await,
            Self::Cancel(cancel) => cancel.run(app).await,
        }
    }
}

async fn find(store: &dyn Store, id: JobId) -> Result<Job> {
    let job = store.job(id).await?;
    job.ok_or_else(|| Error::NotFound { what: "job", name: id.to_string() }.into())
}

async fn show(store: &dyn Store, id: JobId, app: &App) -> Result<()> {
    let out = app.out;
    let job = find(store, id).await?;
    if out.json {
        out.json(&JobView::from(&job));
        return Ok(());
    }
    let now = store.now().await?;
    let time = |at: Timestamp| format!("{at:.3} ({})", output::when(at, now));
    let field =
        |name: &str, value: String| out.line(format!("{}{value}", output::dim(format!("{name:<14}"))));
    out.line(output::bold(format!("job {}", job.id)));
    field("kind", job.kind.clone());
    field("queue", job.queue.clone());
    field(
        "state",
        format!("{}{}", job.state, if job.cancel_requested { ", cancellation requested" } else { "" }),
    );
    field("attempts", format!("{} of {}", job.attempt_count, job.max_attempts));
    if job.crash_count > 0 {
        field("crashes", format!("{} of its workers", job.crash_count));
    }
    field("progress", format!("{} %", job.percent()));
    if job.priority != 0 {
        field("priority", job.priority.to_string());
    }
    let parents = store.parents(id).await?;
    if !parents.is_empty() {
        let parents: Vec<String> = parents.iter().map(|(id, state)| format!("{id} ({state})")).collect();
        field("after", parents.join(", "));
    }
    for (name, key) in [
        ("unique key", &job.unique_key),
        ("limit key", &job.limit_key),
        ("trace", &job.trace_id),
        ("worker", &job.worker),
    ] {
        if let Some(key) = key {
            field(name, key.clone());
        }
    }
    let instants = [
        ("created", Some(job.created_at)),
        ("due", Some(job.run_at).filter(|due| *due != job.created_at)),
        ("started", job.started_at),
        ("finished", job.finished_at),
        ("lease until", job.lease_expires_at),
    ];
    for (name, at) in instants {
        if let Some(at) = at {
            field(name, time(at));
        }
    }
    field("payload", job.payload.get().to_owned());
    if let Some(result) = &job.result {
        field("result", result.get().to_owned());
    }
    if let Some(place) = artifact_in_words(&job, &app.settings) {
        field("artifact", place);
    }
    if let Some(error) = &job.error {
        field("error", format!("{} ({}): {}", error.code, error.class, error.message));
        for line in error.detail.iter().flat_map(|detail| detail.lines()) {
            field("", line.to_owned());
        }
    }
    next_step(&job, out);
    Ok(())
}

/// Where the file of a clip is, for a person on this machine; `result` says the rest.
fn artifact_in_words(job: &Job, settings: &Settings) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Made {
        key: String,
        size: u64,
        duration: Option<f64>,
    }
    if job.kind != clip::KIND {
        return None;
    }
    let made: Made = serde_json::from_str(job.result.as_ref()?.get()).ok()?;
    let length = made.duration.map_or_else(String::new, |seconds| format!(", {seconds:.1} s long"));
    Some(format!("{} ({}{length})", settings.artifacts.url.location(&made.key), size::words(made.size)))
}

fn next_step(job: &Job, out: Output) {
    let hint = match job.state {
        State::Queued => format!("stargate explain {}    why it is not running", job.id),
        State::Processing => format!("stargate job watch {}    follow it", job.id),
        State::Failed => format!("stargate job retry {}    run it again", job.id),
        State::Done | State::Cancelled => return,
    };
    out.note(format!("\n{}", output::dim(hint)));
}

async fn events(store: &dyn Store, id: JobId, out: Output) -> Result<()> {
    let job = find(store, id).await?;
    let mut events = Vec::new();
    loop {
        let after = events.last().map_or(0, |event: &stargate_queue::event::Event| event.seq);
        let page = store.events(id, after, PAGE_MAX).await?;
        let last = page.len() < usize::try_from(PAGE_MAX).unwrap_or(usize::MAX);
        events.extend(page);
        if last {
            break;
        }
    }
    if out.json {
        out.json(&events);
        return Ok(());
    }
    let mut table = output::table(&["seq", "after", "event", "details"]);
    for event in &events {
        let since = event.at.duration_since(job.created_at).as_secs_f64().max(0.0);
        table.add_row(vec![
            event.seq.to_string(),
            output::short(Duration::from_secs_f64(since)),
            event.event.clone(),
            event_in_words(event),
        ]);
    }
    out.table(&table, "no events");
    Ok(())
}

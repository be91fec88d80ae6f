//! `stargate job …`: look at jobs and steer them.

use std::time::Duration;

use clap::{Args, Subcommand};
use comfy_table::Cell;
use jiff::{SignedDuration, Timestamp};
use stargate_jobs::clip;
use stargate_queue::store::{Cancelled, JobFilter, PAGE_MAX, Store};
use stargate_queue::{Error, Job, JobId, SharedStore, Stage, State};

use super::enqueue::Enqueue;
use crate::argument;
use crate::config::{Settings, interval, size};
use crate::failure::{Exit, Failure, Result};
use crate::follow::{self, Audience};
use crate::output::{self, Output};
use crate::run::App;
use crate::view::{JobView, cut, event_in_words};

/// `job …`
#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// Enqueue a job
    Enqueue(Enqueue),
    /// List jobs, newest first
    List(List),
    /// Show one job
    Show(One),
    /// Show the timeline of a job
    Events(One),
    /// Follow jobs live until they end
    Watch(Watch),
    /// Have failed jobs run again
    Retry(Many),
    /// End waiting jobs, ask running ones to stop
    Cancel(Many),
}

/// `job list`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stargate job list --state failed --since 1h
  stargate job list --kind mail --state queued,processing
  stargate job list --limit 100 --before 4200      the page before job 4200")]
pub(crate) struct List {
    /// Only these states: queued, processing, done, failed, cancelled
    #[arg(long, value_name = "STATE", value_delimiter = ',')]
    state: Vec<State>,
    /// Only this kind
    #[arg(long)]
    kind: Option<String>,
    /// Only this queue
    #[arg(long)]
    queue: Option<String>,
    /// Only jobs created since: 1h, 30m, or an instant
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// At most so many, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=i64::from(PAGE_MAX)))]
    limit: u32,
    /// Only jobs with a smaller id: the next page
    #[arg(long, value_name = "JOB", value_parser = argument::job_id)]
    before: Option<JobId>,
}

/// One job.
#[derive(Debug, Args)]
pub(crate) struct One {
    /// The job's id
    #[arg(value_parser = argument::job_id)]
    job: JobId,
}

/// Some jobs.
#[derive(Debug, Args)]
pub(crate) struct Many {
    /// Ids of jobs
    #[arg(required = true, value_name = "JOB", value_parser = argument::job_id)]
    jobs: Vec<JobId>,
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
        if let Self::Enqueue(enqueue) = self {
            return enqueue.run(app).await;
        }
        let store = app.jobs().await?;
        match self {
            Self::Enqueue(_) => Ok(()),
            Self::List(list) => list.run(store.as_ref(), app.out).await,
            Self::Show(one) => show(store.as_ref(), one.job, app).await,
            Self::Events(one) => events(store.as_ref(), one.job, app.out).await,
            Self::Watch(watch) => {
                let audience = if app.out.json { Audience::Program } else { Audience::Person };
                let jobs =
                    follow::follow(store.as_ref(), &watch.jobs, watch.timeout, audience, app.out).await?;
                follow::verdict(&jobs)
            }
            Self::Retry(many) => many.retry(&store, app.out).await,
            Self::Cancel(many) => many.cancel(&store, app.out).await,
        }
    }
}

impl List {
    /// Whether only some jobs are asked for.
    fn filters(&self) -> bool {
        let named = self.kind.is_some() || self.queue.is_some();
        named || !self.state.is_empty() || self.since.is_some() || self.before.is_some()
    }

    async fn run(&self, store: &dyn Store, out: Output) -> Result<()> {
        let now = store.now().await?;
        let filter = JobFilter {
            states: self.state.clone(),
            kind: self.kind.clone(),
            queue: self.queue.clone(),
            since: self.since.as_deref().map(|text| since(text, now)).transpose()?,
            before: self.before,
            limit: self.limit,
        };
        let jobs = store.jobs(filter).await?;
        if out.json {
            out.json(&jobs.iter().map(JobView::from).collect::<Vec<_>>());
            return Ok(());
        }
        let mut table = output::table(&["id", "kind", "queue", "state", "attempt", "created", ""]);
        for job in &jobs {
            table.add_row(vec![
                Cell::new(job.id),
                Cell::new(&job.kind),
                Cell::new(&job.queue),
                output::state_cell(job.state),
                Cell::new(format!("{}/{}", job.attempt_count, job.max_attempts)),
                Cell::new(output::when(job.created_at, now)),
                Cell::new(remark(job, now)),
            ]);
        }
        out.table(&table, if self.filters() { "no jobs match" } else { "no jobs yet" });
        let full = jobs.len() >= usize::try_from(self.limit).unwrap_or(usize::MAX);
        if let (true, Some(last)) = (full, jobs.last()) {
            out.note(output::dim(format!("there may be more: add --before {}", last.id)));
        }
        Ok(())
    }
}

/// What is worth knowing about a job in a listing.
fn remark(job: &Job, now: Timestamp) -> String {
    match (job.state, job.stage) {
        (State::Queued, Some(Stage::Delayed)) => match &job.error {
            Some(error) => {
                format!("retry {} after {}", output::when(job.run_at, now), cut(&error.message, 50))
            }
            None => format!("due {}", output::when(job.run_at, now)),
        },
        (State::Queued, Some(Stage::Blocked)) => "waits for other jobs".to_owned(),
        (State::Processing, _) if job.cancel_requested => "cancelling".to_owned(),
        (State::Processing, _) => format!("{} %", job.percent()),
        (State::Failed, _) => job
            .error
            .as_ref()
            .map_or_else(String::new, |error| cut(&format!("{}: {}", error.code, error.message), 70)),
        _ => String::new(),
    }
}

fn since(text: &str, now: Timestamp) -> Result<Timestamp> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at);
    }
    let ago = interval::parse(text).ok().and_then(|length| SignedDuration::try_from(length).ok());
    ago.and_then(|ago| now.checked_sub(ago).ok()).ok_or_else(|| {
        let problem = "is neither a length of time (1h) nor an instant (2026-01-31T12:00:00Z)";
        Failure::new(Exit::Usage, "USAGE", format!("--since {text:?} {problem}"))
    })
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

impl Many {
    async fn retry(&self, store: &SharedStore, out: Output) -> Result<()> {
        let retry = async |id| store.retry(id).await.map(|()| (State::Queued, "will run again"));
        self.each(out, retry).await
    }

    async fn cancel(&self, store: &SharedStore, out: Output) -> Result<()> {
        let cancel = async |id| {
            Ok(match store.cancel(id).await? {
                Cancelled::Ended => (State::Cancelled, "is cancelled"),
                Cancelled::Requested => (State::Processing, "is running; its worker has been asked to stop"),
            })
        };
        self.each(out, cancel).await
    }

    /// Does it to every job. One that refuses does not keep the others from their turn; the first refusal decides
    /// about the exit code.
    async fn each(
        &self,
        out: Output,
        action: impl AsyncFn(JobId) -> stargate_queue::Result<(State, &'static str)>,
    ) -> Result<()> {
        let (mut answers, mut refusals) = (Vec::new(), Vec::new());
        for id in &self.jobs {
            match action(*id).await {
                Ok((state, words)) => {
                    answers.push(serde_json::json!({ "id": id, "state": state }));
                    if !out.json {
                        out.line(format!("job {id} {words}"));
                    }
                }
                Err(error @ (Error::NotFound { .. } | Error::WrongState { .. })) => {
                    refusals.push(Failure::from(error));
                }
                Err(error) => return Err(error.into()),
            }
        }
        if out.json && !answers.is_empty() {
            out.json(&answers);
        }
        let mut refusals = refusals.into_iter();
        let Some(mut refusal) = refusals.next() else { return Ok(()) };
        let exit = refusal.exit;
        // Programs get one error and see from the answers which jobs it was done to.
        for next in refusals.take_while(|_| !out.json) {
            out.failure(&refusal);
            refusal = next;
            refusal.exit = exit;
        }
        Err(refusal)
    }
}

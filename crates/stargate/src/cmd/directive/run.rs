//! `stargate directive run`: one run, followed to its end.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use stargate_base::Tasks;
use stargate_directive::file::Directive;
use stargate_directive::{Outcome, Run as DirectiveRun, RunId};
use stargate_queue::handler::Registry;
use stargate_queue::pool::{Pool, PoolConfig};
use stargate_queue::{Error, JobId, State};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::found;
use crate::assemble::{self, Migrate, Stores};
use crate::config::interval;
use crate::directing::view::RunView;
use crate::directing::{self, Catalogue, Runner};
use crate::failure::{Exit, Failure, Result};
use crate::output::{self, Output};
use crate::run::App;
use crate::signals;

/// How often to look. Fast enough for the eye, slow enough for the store.
const LOOK_EVERY: Duration = Duration::from_millis(150);

/// `directive run`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stargate directive run issues
  stargate directive run issues --json | jq .created

If no worker serves the directive's queue, the run is executed by this command. A run that
goes on already is followed instead of beginning another.")]
pub(crate) struct Run {
    /// The directive
    name: String,
    /// What executes it
    #[arg(long, value_enum, default_value_t = Engine::Embedded)]
    engine: Engine,
    /// Give up waiting after so long and exit 10; the run goes on
    #[arg(long, value_name = "TIME", value_parser = interval::parse)]
    timeout: Option<Duration>,
}

/// What executes a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    /// A job on the queue
    Embedded,
}

impl Run {
    /// Enqueues, follows, tells.
    pub(crate) async fn run(&self, app: &App) -> Result<()> {
        let Engine::Embedded = self.engine;
        let directive = found(Catalogue::of(&app.settings).find(&self.name))?;
        let stores = assemble::open_all(&app.settings, Migrate::Yes).await?;
        stores.jobs.kinds_register(assemble::specs(&app.settings)?).await?;
        let job = directing::job(&directive)?;
        let accepted = stores.jobs.enqueue(vec![job]).await?;
        let accepted =
            accepted.first().copied().ok_or_else(|| Failure::input("the store did not answer the job"))?;
        if accepted.existing {
            app.out.note(format!("run {} goes on already; it is followed", accepted.id));
        }
        let here = match is_served(&stores, &directive).await? {
            true => None,
            false => Some(Here::start(app, &stores, &directive).await?),
        };
        let followed = self.follow(app, &stores, accepted.id).await;
        if let Some(here) = here {
            here.end().await;
        }
        tell(app.out, &followed?)
    }

    async fn follow(&self, app: &App, stores: &Stores, job: JobId) -> Result<DirectiveRun> {
        let (started, run) = (Instant::now(), RunId(job.to_string()));
        let mut screen = Screen::new(app.out, &self.name);
        loop {
            let state = stores.jobs.job(job).await?.map(|job| (job.state, job.error));
            let found = stores.directives.run(&run).await?;
            if let Some(found) = &found {
                screen.show(found);
            }
            match (found, state) {
                (Some(found), _) if found.outcome.is_some() => return Ok(found),
                // The job ended before its run began, or was cancelled beside it.
                (_, Some((State::Failed, Some(error)))) => {
                    return Err(Failure::failed(&error.code, error.message));
                }
                (_, Some((State::Cancelled, _))) => {
                    return Err(Failure::failed("NOT_DONE", format!("job {job} was cancelled")));
                }
                (None, Some((State::Done, _)) | None) => {
                    return Err(Error::NotFound { what: "run", name: run.to_string() }.into());
                }
                _ => {}
            }
            if self.timeout.is_some_and(|timeout| started.elapsed() >= timeout) {
                let message = format!("run {run} goes on after {}", output::short(started.elapsed()));
                return Err(Failure::new(Exit::TimedOut, "TIMED_OUT", message)
                    .help(format!("'stargate directive show {}' tells where it is", self.name)));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// Whether somebody is there to execute the run.
async fn is_served(stores: &Stores, directive: &Directive) -> Result<bool> {
    let workers = stores.jobs.workers().await?;
    Ok(workers.iter().any(|worker| {
        worker.alive
            && worker.kinds.iter().any(|kind| kind == directing::KIND)
            && (worker.queues.is_empty() || worker.queues.contains(&directive.queue))
    }))
}

/// A pool in this process, for runs only.
struct Here {
    stop: CancellationToken,
    pool: JoinHandle<()>,
    tasks: Tasks,
}

impl Here {
    async fn start(app: &App, stores: &Stores, directive: &Directive) -> Result<Self> {
        let tasks = Tasks::new();
        let mut registry = Registry::new();
        Runner::new(&app.settings, &stores.directives, &tasks).register(&mut registry)?;
        let config = PoolConfig {
            queues: vec![directive.queue.clone()],
            concurrency: 1,
            ..assemble::pool_config(&app.settings.worker)
        };
        let pool = Pool::start(Arc::clone(&stores.jobs), registry, config).await?;
        let stop = signals::stop_token(&tasks)?;
        let pool = tasks.spawn(pool.run(stop.clone()));
        Ok(Self { stop, pool, tasks })
    }

    async fn end(self) {
        self.stop.cancel();
        drop(self.pool.await);
        self.tasks.join().await;
    }
}

/// What a person sees meanwhile.
struct Screen {
    out: Output,
    bar: Option<ProgressBar>,
    /// What was said last where there is no terminal.
    waiting: Option<String>,
}

impl Screen {
    fn new(out: Output, name: &str) -> Self {
        let is_wanted = !out.json && std::io::stderr().is_terminal();
        let bar = is_wanted.then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix}  {msg}") {
                bar.set_style(style);
            }
            bar.set_prefix(name.to_owned());
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        });
        Self { out, bar, waiting: None }
    }

    fn show(&mut self, run: &DirectiveRun) {
        let Some(bar) = &self.bar else {
            if self.waiting != run.beat.waiting_for {
                self.waiting.clone_from(&run.beat.waiting_for);
                self.waiting.iter().for_each(|reason| self.out.note(format!("waiting: {reason}")));
            }
            return;
        };
        let counts = run.counts;
        let mut text = format!("page {}  {} items", run.pages, output::grouped(counts.total()));
        if counts.failed > 0 {
            text.push_str(&format!("  {} quarantined", output::grouped(counts.failed)));
        }
        if let Some(reason) = &run.beat.waiting_for {
            text.push_str(&format!("  waiting: {reason}"));
        }
        bar.set_message(text);
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// The summary, and an exit code that says how it went.
fn tell(out: Output, run: &DirectiveRun) -> Result<()> {
    match out.json {
        true => out.json(&RunView::from(run)),
        false => out.line(in_words(run)),
    }
    match run.outcome {
        Some(Outcome::Succeeded) | None => Ok(()),
        Some(Outcome::Cancelled) => Err(Failure::failed("NOT_DONE", format!("run {} was cancelled", run.id))
            .help(format!(
                "its cursor is where it stopped: 'stargate directive run {}' goes on there",
                run.directive
            ))),
        Some(Outcome::Failed) => {
            let error = run.error.clone().unwrap_or_default();
            let (code, message) = error.split_once(": ").unwrap_or(("NOT_DONE", &error));
            Err(Failure::failed(code, format!("run {} failed: {message}", run.id))
                .help(format!("'stargate directive show {}' has the details", run.directive)))
        }
    }
}

fn in_words(run: &DirectiveRun) -> String {
    let counts = run.counts;
    let took = run.ended_at.map(|end| end.duration_since(run.started_at));
    let took = took.and_then(|took| Duration::try_from(took).ok()).map(output::short).unwrap_or_default();
    let outcome = run.outcome.map_or("goes on", |outcome| outcome.as_str());
    let mut text = format!(
        "{} {outcome} in {took}: {} pages, {} created, {} updated, {} unchanged, {} quarantined",
        run.directive,
        output::grouped(run.pages),
        output::grouped(counts.created),
        output::grouped(counts.updated),
        output::grouped(counts.unchanged),
        output::grouped(counts.failed),
    );
    if counts.failed > 0 {
        text.push_str(&format!("\nsee: stargate directive quarantine list {}", run.directive));
    }
    text
}

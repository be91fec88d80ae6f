//! `stargate directive run`: one run, followed to its end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use stargate_base::Tasks;
use stargate_directive::file::Directive;
use stargate_directive::{Outcome, Run as DirectiveRun, RunId};
use stargate_queue::handler::Registry;
use stargate_queue::pool::{Pool, PoolConfig};
use stargate_queue::{JobId, State};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::found;
use super::screen::Screen;
use crate::assemble::{self, Migrate, Stores};
use crate::auditing::audited;
use crate::config::directives::Engine;
use crate::config::interval;
use crate::directing::{self, Catalogue, Runner, steer, view};
use crate::failure::{Exit, Failure, Result};
use crate::output::{self, Output};
use crate::run::App;
use crate::{signals, temporal};

/// How often to look. Fast enough for the eye, slow enough for the store.
const LOOK_EVERY: Duration = Duration::from_millis(60);

/// Looks after which it is asked again whether a worker is there: one that was killed is missed a little later.
const SERVED_EVERY: u32 = 10;

/// `directive run`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stargate directive run issues
  stargate directive run issues --json | jq .created
  stargate directive run issues --engine temporal --no-wait

If no worker serves the directive's queue, the run is executed by this command. A run that
goes on already is followed instead of beginning another.")]
pub(crate) struct Run {
    /// The directive
    pub(super) name: String,
    #[command(flatten)]
    pub(super) engine: super::EngineChoice,
    /// Give up waiting after so long and exit 10; the run goes on
    #[arg(long, value_name = "TIME", value_parser = interval::parse)]
    pub(super) timeout: Option<Duration>,
    /// Do not wait: print the run's id and leave it to the workers
    #[arg(long, conflicts_with = "timeout")]
    pub(super) no_wait: bool,
}

impl Run {
    /// Enqueues, follows, tells.
    pub(crate) async fn run(&self, app: &App) -> Result<()> {
        let directive = found(Catalogue::of(&app.settings).find(&self.name))?;
        let stores = assemble::open_all(&app.settings, Migrate::Yes).await?;
        if self.no_wait {
            return self.begin(app, &stores, &directive).await;
        }
        if app.settings.directives.engine == Engine::Temporal {
            let run = temporal::run(app, &stores, &directive, self.timeout).await?;
            return tell(app.out, &run);
        }
        stores.jobs.kinds_register(assemble::specs(&app.settings)?).await?;
        let mut hand = Hand { app, stores: &stores, directive: &directive, here: None };
        let followed = self.ask(&mut hand).await;
        if let Some(here) = hand.here {
            here.end().await;
        }
        tell(app.out, &followed?)
    }

    /// Has a run begun, unless one goes on.
    async fn begin(&self, app: &App, stores: &Stores, directive: &Directive) -> Result<()> {
        let work = steer::begin(&app.settings, stores.jobs.as_ref(), directive);
        let (run, existing) =
            audited(&stores.audit, "directive.run", &self.name, serde_json::Value::Null, work).await?;
        match app.out.json {
            true => app.out.json(&serde_json::json!({ "run_id": run, "existing": existing })),
            false => app.out.line(run),
        }
        Ok(())
    }

    /// Enqueues a run and follows it. One that has ended and whose job has not heard of it yet is no answer: another is
    /// asked for.
    async fn ask(&self, hand: &mut Hand<'_>) -> Result<DirectiveRun> {
        let stores = hand.stores;
        loop {
            let work = stores.jobs.enqueue(vec![directing::job(hand.directive)?]);
            let accepted =
                audited(&stores.audit, "directive.run", &self.name, serde_json::Value::Null, work).await?;
            let accepted = accepted.first().copied();
            let accepted = accepted.ok_or_else(|| Failure::input("the store did not answer the job"))?;
            let run = RunId(accepted.id.to_string());
            let had_ended = stores.directives.run(&run).await?.is_some_and(|run| run.outcome.is_some());
            if accepted.existing && !had_ended {
                hand.app.out.note(format!("run {run} goes on already; it is followed"));
            }
            let followed = self.follow(hand, accepted.id).await?;
            if !(accepted.existing && had_ended) {
                return Ok(followed);
            }
        }
    }

    async fn follow(&self, hand: &mut Hand<'_>, job: JobId) -> Result<DirectiveRun> {
        let (started, run) = (Instant::now(), RunId(job.to_string()));
        let mut screen = Screen::new(hand.app.out, &self.name);
        let mut looks: u32 = 0;
        loop {
            // The job is read first: what became of its run is then there to be read.
            let state = hand.stores.jobs.job(job).await?.map(|job| (job.state, job.error));
            let found = hand.stores.directives.run(&run).await?;
            if let Some(found) = &found {
                screen.show(found);
            }
            let is_open = state.as_ref().is_some_and(|(state, _)| !state.is_finished());
            match (found, state) {
                (Some(found), _) if found.outcome.is_some() && !is_open => return Ok(found),
                _ if is_open => {}
                (_, Some((State::Failed, Some(error)))) => {
                    return Err(Failure::failed(&error.code, error.message));
                }
                (_, state) => {
                    let state = state.map_or_else(|| "gone".to_owned(), |(state, _)| state.to_string());
                    return Err(Failure::failed(
                        "NOT_DONE",
                        format!("job {job} is {state} and its run has not ended"),
                    ));
                }
            }
            if self.timeout.is_some_and(|timeout| started.elapsed() >= timeout) {
                let message = format!("run {run} goes on after {}", output::short(started.elapsed()));
                return Err(Failure::new(Exit::TimedOut, "TIMED_OUT", message)
                    .help(format!("'stargate directive show {}' tells where it is", self.name)));
            }
            if looks.is_multiple_of(SERVED_EVERY) {
                hand.lend().await?;
            }
            looks += 1;
            if hand.waits_in_vain(LOOK_EVERY).await {
                return Err(Failure::failed(
                    "NOT_DONE",
                    format!("stopped; run {run} goes on with the next worker"),
                ));
            }
        }
    }
}

/// Executes the run here if nobody else does.
struct Hand<'a> {
    app: &'a App,
    stores: &'a Stores,
    directive: &'a Directive,
    here: Option<Here>,
}

impl Hand<'_> {
    /// Looks whether a worker is there, and becomes one if not.
    async fn lend(&mut self) -> Result<()> {
        if self.here.is_none() && !is_served(self.stores, self.directive).await? {
            self.here = Some(Here::start(self.app, self.stores, self.directive).await?);
        }
        Ok(())
    }

    /// Waits; true if the person does not want to any more. Without work of its own the command simply ends.
    async fn waits_in_vain(&self, time: Duration) -> bool {
        match &self.here {
            None => {
                tokio::time::sleep(time).await;
                false
            }
            Some(here) => here.stop.run_until_cancelled(tokio::time::sleep(time)).await.is_none(),
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

/// The summary, and an exit code that says how it went.
fn tell(out: Output, run: &DirectiveRun) -> Result<()> {
    match out.json {
        true => out.json(&view::run(run)),
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

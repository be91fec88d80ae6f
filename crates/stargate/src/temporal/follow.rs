//! `directive run` on Temporal: a workflow, followed to its end.

use std::time::{Duration, Instant};

use stargate_base::Tasks;
use stargate_directive::file::Directive;
use stargate_directive::{Run, RunId};
use stargate_temporal::{Cluster, LENT, Started};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::assemble::Stores;
use crate::cmd::directive::screen::Screen;
use crate::config::Settings;
use crate::failure::{Exit, Failure, Result};
use crate::output;
use crate::run::App;
use crate::signals;

/// How often to look. The cluster is asked each time, so not as fast as the eye.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Looks after which it is asked again whether a worker is there.
const SERVED_EVERY: u32 = 10;

/// Has the workflow of a directive begun: its run, and whether one goes on already.
pub(crate) async fn begin(settings: &Settings, directive: &Directive) -> Result<(String, bool)> {
    let started = super::connect(settings).await?.start(directive).await?;
    Ok((started.run.0, started.existing))
}

/// Starts the workflow of a directive, or finds it running, and follows it. If nobody serves its queue, this command
/// does.
pub(crate) async fn run(
    app: &App,
    stores: &Stores,
    directive: &Directive,
    timeout: Option<Duration>,
) -> Result<Run> {
    let identity = format!("{}{LENT}", app.settings.leader.instance);
    let cluster = Cluster::connect(&super::place(&app.settings, identity)?).await?;
    let mut here = None;
    let followed = ask(app, stores, &cluster, directive, timeout, &mut here).await;
    if let Some(here) = here {
        end(here).await?;
    }
    followed
}

/// A worker in this process.
struct Here {
    stop: CancellationToken,
    serving: JoinHandle<Result<()>>,
    tasks: Tasks,
}

async fn end(here: Here) -> Result<()> {
    here.stop.cancel();
    let served = here.serving.await;
    here.tasks.join().await;
    served.map_err(|error| Failure::failed("INTERNAL", format!("the worker ended unexpectedly: {error}")))?
}

/// Starts a run and follows it. One that has ended and whose workflow has not closed yet is no answer: another is asked
/// for.
async fn ask(
    app: &App,
    stores: &Stores,
    cluster: &Cluster,
    directive: &Directive,
    timeout: Option<Duration>,
    here: &mut Option<Here>,
) -> Result<Run> {
    loop {
        let Started { run, existing } = cluster.start(directive).await?;
        let had_ended =
            existing && stores.directives.run(&run).await?.is_some_and(|run| run.outcome.is_some());
        if existing && !had_ended {
            app.out.note(format!("run {run} goes on already; it is followed"));
        }
        let followed = follow(app, stores, cluster, directive, &run, timeout, here).await?;
        if !had_ended {
            return Ok(followed);
        }
    }
}

async fn follow(
    app: &App,
    stores: &Stores,
    cluster: &Cluster,
    directive: &Directive,
    run: &RunId,
    timeout: Option<Duration>,
    here: &mut Option<Here>,
) -> Result<Run> {
    let (started, name) = (Instant::now(), directive.name.as_str());
    let mut screen = Screen::new(app.out, name);
    let mut looks: u32 = 0;
    loop {
        // The workflow is asked first: what became of its run is then there to be read.
        let closed = cluster.ended(name, run).await?;
        let found = stores.directives.run(run).await?;
        if let Some(found) = &found {
            screen.show(found);
        }
        match (found, closed) {
            (Some(found), Some(_)) if found.outcome.is_some() => return Ok(found),
            (_, Some(closed)) => {
                let why = closed.error.map(|why| format!(": {why}")).unwrap_or_default();
                let message = format!("the workflow of run {run} is {}{why}", closed.status.as_str());
                return Err(Failure::failed(closed.code.as_deref().unwrap_or("NOT_DONE"), message));
            }
            (_, None) => {}
        }
        if timeout.is_some_and(|timeout| started.elapsed() >= timeout) {
            let message = format!("run {run} goes on after {}", output::short(started.elapsed()));
            return Err(Failure::new(Exit::TimedOut, "TIMED_OUT", message)
                .help(format!("'stargate directive show {name}' tells where it is")));
        }
        if here.is_none() && looks.is_multiple_of(SERVED_EVERY) && !is_served(cluster, directive).await? {
            *here = Some(lend(app, stores, cluster, directive)?);
        }
        looks += 1;
        let wait = tokio::time::sleep(LOOK_EVERY);
        let is_over = match &*here {
            None => {
                wait.await;
                false
            }
            Some(here) => here.stop.run_until_cancelled(wait).await.is_none(),
        };
        if is_over {
            let message = format!("stopped; run {run} goes on with the next worker");
            return Err(Failure::failed("NOT_DONE", message));
        }
    }
}

async fn is_served(cluster: &Cluster, directive: &Directive) -> Result<bool> {
    let found = cluster.describe(std::slice::from_ref(&directive.queue)).await?;
    Ok(found.polled.iter().all(stargate_temporal::Polled::is_served))
}

fn lend(app: &App, stores: &Stores, cluster: &Cluster, directive: &Directive) -> Result<Here> {
    let tasks = Tasks::new();
    let stop = signals::stop_token(&tasks)?;
    let queues = vec![directive.queue.clone()];
    let (settings, store) = (&app.settings, &stores.directives);
    let (host, options) = (super::host(settings, store, &tasks), super::options(settings, queues));
    let (cluster, stopped) = (cluster.clone(), stop.clone());
    let serving = tasks.spawn(async move {
        let served = stargate_temporal::serve(cluster, host, options, stopped.clone()).await;
        stopped.cancel();
        Ok(served?)
    });
    Ok(Here { stop, serving, tasks })
}

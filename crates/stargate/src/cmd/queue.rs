//! `stargate queue …`: how much waits where, and stopping and starting the giving out of jobs.

use clap::{Args, Subcommand};
use comfy_table::{Cell, CellAlignment, Color};
use serde::Serialize;
use stargate_queue::job::check_name;
use stargate_queue::store::{PauseTarget, Store};

use crate::auditing::Desk;
use crate::failure::{Failure, Result};
use crate::output::{self, Output};
use crate::run::App;

/// `queue …`
#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// List queues with what waits in them
    List,
    /// Stop giving out jobs of a queue or a kind; running ones go on
    #[command(after_help = "Examples:\n  stargate queue pause mail\n  stargate queue pause --kind thumbnail")]
    Pause(Target),
    /// Give out jobs of a queue or a kind again
    Resume(Target),
}

/// A queue or a kind.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Target {
    /// The queue
    queue: Option<String>,
    /// All jobs of a kind, in whatever queue
    #[arg(long)]
    kind: Option<String>,
}

impl Target {
    fn pause_target(&self) -> Result<PauseTarget> {
        match (&self.queue, &self.kind) {
            (_, Some(kind)) => {
                check_name("kind", kind)?;
                Ok(PauseTarget::Kind(kind.clone()))
            }
            (Some(queue), None) => {
                check_name("queue", queue)?;
                Ok(PauseTarget::Queue(queue.clone()))
            }
            (None, None) => Err(Failure::input("name a queue, or a kind with --kind")),
        }
    }
}

#[derive(Serialize)]
struct QueueView<'a> {
    queue: &'a str,
    ready: u64,
    delayed: u64,
    blocked: u64,
    processing: u64,
    failed: u64,
    paused: bool,
}

impl QueueCommand {
    /// Runs the command.
    pub(crate) async fn run(&self, app: &App) -> Result<()> {
        match self {
            Self::List => list(app.jobs().await?.as_ref(), app.out).await,
            Self::Pause(target) => {
                let (target, desk) = (target.pause_target()?, Desk::open(app).await?);
                let (what, name) = named(&target);
                let work = desk.jobs.pause(target.clone());
                desk.act(&format!("{what}.pause"), name, serde_json::Value::Null, work).await?;
                answer(app.out, &target, true, "is paused; jobs that run go on, the others wait");
                if let PauseTarget::Kind(kind) = &target {
                    note_unknown(desk.jobs.as_ref(), kind, app.out).await?;
                }
                Ok(())
            }
            Self::Resume(target) => {
                let (target, desk) = (target.pause_target()?, Desk::open(app).await?);
                let (what, name) = named(&target);
                let work = desk.jobs.resume(target.clone());
                let was_paused =
                    desk.act(&format!("{what}.resume"), name, serde_json::Value::Null, work).await?;
                let words = if was_paused { "gives out jobs again" } else { "was not paused" };
                answer(app.out, &target, false, words);
                Ok(())
            }
        }
    }
}

/// A kind may be paused before it is known, but more likely its name has a typo.
async fn note_unknown(store: &dyn Store, kind: &str, out: Output) -> Result<()> {
    let known: Vec<String> = store.kinds().await?.into_iter().map(|spec| spec.name).collect();
    if !known.iter().any(|name| name == kind) {
        out.note(output::dim(format!("no kind {kind} is known so far; known kinds: {}", known.join(", "))));
    }
    Ok(())
}

/// What it is, and its name.
pub(crate) fn named(target: &PauseTarget) -> (&'static str, &str) {
    match target {
        PauseTarget::Queue(name) => ("queue", name),
        PauseTarget::Kind(name) => ("kind", name),
    }
}

fn answer(out: Output, target: &PauseTarget, paused: bool, words: &str) {
    let (what, name) = named(target);
    match out.json {
        true => out.json(&serde_json::json!({ what: name, "paused": paused })),
        false => out.line(format!("{what} {name} {words}")),
    }
}

async fn list(store: &dyn Store, out: Output) -> Result<()> {
    let queues = store.queues().await?;
    if out.json {
        let views = queues.iter().map(|counts| QueueView {
            queue: &counts.queue,
            ready: counts.ready,
            delayed: counts.delayed,
            blocked: counts.blocked,
            processing: counts.processing,
            failed: counts.failed,
            paused: counts.paused,
        });
        out.json(&views.collect::<Vec<_>>());
        return Ok(());
    }
    let mut table = output::table(&["queue", "ready", "delayed", "blocked", "processing", "failed", ""]);
    for counts in &queues {
        let number = |n: u64| Cell::new(output::grouped(n)).set_alignment(CellAlignment::Right);
        let failed = if counts.failed > 0 { number(counts.failed).fg(Color::Red) } else { number(0) };
        let paused = if counts.paused { Cell::new("paused").fg(Color::Yellow) } else { Cell::new("") };
        table.add_row(vec![
            Cell::new(&counts.queue),
            number(counts.ready),
            number(counts.delayed),
            number(counts.blocked),
            number(counts.processing),
            failed,
            paused,
        ]);
    }
    out.table(&table, "no queues yet; the first job makes one");
    for target in store.pauses().await? {
        if let PauseTarget::Kind(kind) = target {
            out.note(format!(
                "kind {kind} is paused; 'stargate queue resume --kind {kind}' gives it out again"
            ));
        }
    }
    Ok(())
}

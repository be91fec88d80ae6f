//! `stargate failures`: failed jobs by their cause, and having them run again.

use std::time::Duration;

use clap::{Args, Subcommand};
use comfy_table::{Cell, CellAlignment};
use reqwest::Method;
use stargate_queue::bulk::{RETRY_MATCHING, RetryMatching};
use stargate_queue::store::{FailureGroup, JobFilter};
use stargate_queue::{JobId, NewJob};
use stargate_web::api::types::failures::FailuresRequeued;

use super::job::bulk::{self, Action};
use super::job::select::Selection;
use crate::assemble;
use crate::auditing::Desk;
use crate::config::interval;
use crate::consent::Consent;
use crate::failure::{Exit, Failure, Result};
use crate::follow::{self, Audience};
use crate::output::{self, grouped};
use crate::payload;
use crate::run::App;
use crate::view::cut;

/// How much of a message a table shows.
const MESSAGE_CHARS: usize = 70;
/// How far jobs are counted before a canary goes.
const COUNTED_MAX: u64 = 10_000;

/// `failures`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Examples:
  stargate failures
  stargate failures --json | jq '.[] | select(.count > 100)'
  stargate failures requeue --kind mail --code HTTP_UNAVAILABLE --canary

Looks at the newest 20 000 failed jobs.")]
pub(crate) struct Failures {
    /// At most so many groups, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    #[command(subcommand)]
    command: Option<FailuresCommand>,
}

/// `failures …`
#[derive(Debug, Subcommand)]
pub(crate) enum FailuresCommand {
    /// Have all failed jobs of a kind and code run again
    Requeue(Requeue),
}

/// `failures requeue`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stargate failures requeue --kind mail --code HTTP_UNAVAILABLE
  stargate failures requeue --kind mail --code HTTP_UNAVAILABLE --canary --wait

With --canary the newest of them goes first. When it is done, a job of kind jobs:retry_matching
retries the others; when it fails, they stay as they are.")]
pub(crate) struct Requeue {
    /// Their kind
    #[arg(long)]
    kind: String,
    /// The code of their error
    #[arg(long)]
    code: String,
    /// Try one first, and the others only if that one is done
    #[arg(long)]
    canary: bool,
    /// With --canary: follow it and what comes after; exit 1 if it fails
    #[arg(long, requires = "canary")]
    wait: bool,
    /// With --wait: give up after so long and exit 10
    #[arg(long, value_name = "TIME", value_parser = interval::parse, requires = "wait")]
    timeout: Option<Duration>,
    #[command(flatten)]
    consent: Consent,
}

impl Failures {
    /// Runs the command.
    pub(crate) async fn run(&self, app: &App) -> Result<()> {
        match &self.command {
            Some(FailuresCommand::Requeue(requeue)) => requeue.run(app).await,
            None => self.list(app).await,
        }
    }

    async fn list(&self, app: &App) -> Result<()> {
        let store = app.jobs().await?;
        let groups = store.failures(self.limit).await?;
        if app.out.json {
            app.out.json(&groups);
            return Ok(());
        }
        let now = store.now().await?;
        let mut table = output::table(&["jobs", "kind", "code", "last", "first", "newest", "message"]);
        for group in &groups {
            table.add_row(vec![
                Cell::new(grouped(group.count)).set_alignment(CellAlignment::Right),
                Cell::new(&group.kind),
                Cell::new(&group.code),
                Cell::new(output::when(group.last_at, now)),
                Cell::new(output::when(group.oldest_at, now)),
                Cell::new(group.newest),
                Cell::new(cut(&group.message, MESSAGE_CHARS)),
            ]);
        }
        app.out.table(&table, "no failed jobs");
        if let Some(first) = groups.first() {
            app.out.note(format!("\n{}", output::dim(next_step(first))));
        }
        Ok(())
    }
}

fn next_step(group: &FailureGroup) -> String {
    let FailureGroup { kind, code, newest, .. } = group;
    format!(
        "stargate help {code}    what it means\n\
         stargate job show {newest}    the newest of them\n\
         stargate failures requeue --kind {kind} --code {code} --canary    try one, then the rest"
    )
}

impl Requeue {
    async fn run(&self, app: &App) -> Result<()> {
        if !self.canary {
            let selection = Selection::of_failure(&self.kind, &self.code);
            return bulk::run(app, Action::Retry, &selection, self.consent).await;
        }
        let desk = Desk::open(app).await?;
        let filter = Selection::of_failure(&self.kind, &self.code).filter(desk.jobs.as_ref()).await?;
        let found = desk.jobs.jobs_found(JobFilter { limit: 1, ..filter.clone() }).await?;
        let Some(canary) = found.jobs.first().map(|job| job.id) else {
            let message = format!("no failed job of kind {} with {}", self.kind, self.code);
            return Err(Failure::new(Exit::NotFound, "NOT_FOUND", message)
                .help("'stargate failures' shows what there is"));
        };
        if self.consent.dry_run {
            app.out.line(format!("would retry job {canary} first, and the others when it is done"));
            return Ok(());
        }
        self.consent.ask(app.out, &format!("retry job {canary}, and the others when it is done"))?;
        let begun = match &app.remote {
            Some(node) => {
                let body = serde_json::json!({ "kind": self.kind, "code": self.code, "canary": true });
                node.change(Method::POST, &["failures", "requeue"], Some(&body)).await?
            }
            None => self.begin(app, &desk, filter, canary).await?,
        };
        self.tell(app, &desk, &begun).await
    }

    /// Retries the canary, and enqueues what retries the others once it is done.
    async fn begin(
        &self,
        app: &App,
        desk: &Desk,
        filter: JobFilter,
        canary: JobId,
    ) -> Result<FailuresRequeued> {
        let matched = desk.jobs.jobs_count(filter.clone(), COUNTED_MAX).await?.count;
        // Those that fail only afterwards are not part of it.
        let others = payload::of(&RetryMatching { filter, before_id: Some(canary) })?;
        let others = NewJob { after: vec![canary], ..NewJob::new(RETRY_MATCHING, others) };
        desk.jobs.kinds_register(assemble::specs(&app.settings)?).await?;
        let detail = serde_json::json!({ "matched": matched, "canary": canary });
        let target = format!("{} {}", self.kind, self.code);
        let work = async {
            desk.jobs.retry(canary).await?;
            match matched > 1 {
                true => Ok(desk.jobs.enqueue(vec![others]).await?.first().map(|job| job.id.0)),
                false => Ok::<_, stargate_queue::Error>(None),
            }
        };
        let job = desk.act("failures.requeue", target, detail, work).await?;
        Ok(FailuresRequeued { matched, canary: Some(canary.0), job })
    }

    async fn tell(&self, app: &App, desk: &Desk, begun: &FailuresRequeued) -> Result<()> {
        let ids: Vec<JobId> = begun.canary.into_iter().chain(begun.job).map(JobId).collect();
        match app.out.json {
            true => app.out.json(begun),
            false => {
                let canary = begun.canary.unwrap_or_default();
                app.out.line(format!("job {canary} goes first"));
                if let Some(job) = begun.job {
                    let others = grouped(begun.matched.saturating_sub(1));
                    app.out.line(format!("job {job} retries the {others} others when it is done"));
                }
                if !self.wait {
                    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
                    app.out
                        .note(output::dim(format!("\nstargate job watch {}    follow them", ids.join(" "))));
                }
            }
        }
        if !self.wait {
            return Ok(());
        }
        let audience = if app.out.json { Audience::Nobody } else { Audience::Person };
        let jobs = follow::follow(desk.jobs.as_ref(), &ids, self.timeout, audience, app.out).await?;
        follow::verdict(&jobs)
    }
}

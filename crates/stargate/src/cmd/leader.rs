//! `stargate leader …`: which node leads, who did before, and letting another one lead.

mod status;
pub(crate) mod view;

use std::time::{Duration, Instant};

use clap::{Args, Subcommand};

use crate::config::interval;
use crate::failure::{Exit, Failure, Result};
use crate::node::Node;
use crate::output;
use crate::run::App;
use view::LeaderView;

/// How often to look for a change.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// `leader …`
#[derive(Debug, Subcommand)]
pub(crate) enum LeaderCommand {
    /// Who leads, since when, and who did before
    #[command(
        after_help = "Examples:\n  stargate leader status\n  stargate leader status --terms 100 --json\n\n\
        Asks the node at --url, else the one at api.listen. When that does not answer, the terms are read \
        from the store."
    )]
    Status(status::Status),
    /// A line for each change, as it happens; JSON lines with --json
    Watch,
    /// Exit with 0 if the node leads now, and with 9 if it does not
    #[command(after_help = "Example:\n  stargate leader check && ./only-on-the-leader.sh\n\n\
        The answer ages: use it to choose a node, not to protect data.")]
    Check,
    /// Have the node let another one lead
    #[command(after_help = "Example:\n  stargate leader step-down --wait")]
    StepDown(StepDown),
}

/// `leader step-down`
#[derive(Debug, Args)]
pub(crate) struct StepDown {
    /// Wait until a node leads again
    #[arg(long)]
    wait: bool,
    /// How long to wait
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = interval::parse, requires = "wait")]
    timeout: Duration,
}

impl LeaderCommand {
    /// Runs the command.
    pub(crate) async fn run(&self, app: &App) -> Result<()> {
        match self {
            Self::Status(status) => status.run(app).await,
            Self::Watch => watch(app, &*app.node()?).await,
            Self::Check => check(app, &*app.node()?).await,
            Self::StepDown(step_down) => step_down.run(app).await,
        }
    }
}

/// Prints what changes, for ever.
async fn watch(app: &App, node: &Node) -> Result<()> {
    let mut last = None;
    loop {
        let seen = match view::ask(node, 1).await {
            Ok(view) => view::Seen::Answer(Box::new(view)),
            // A node that is started again is watched again; one that never was there is a mistake.
            Err(failure) if last.is_none() => return Err(failure),
            Err(failure) => view::Seen::Silence(failure.message),
        };
        let mark = seen.mark();
        if last.as_ref() != Some(&mark) {
            seen.print(app.out);
            last = Some(mark);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Answers with the exit code.
async fn check(app: &App, node: &Node) -> Result<()> {
    // Every node has this route, also one without an API.
    let answer = node.get("/healthz").await?;
    let (role, instance) = (answer.text("/role"), answer.text("/instance").unwrap_or("the node"));
    let leader = answer.text("/leader");
    if role == Some("leader") {
        match app.out.json {
            true => app.out.json(&serde_json::json!({
                "instance": instance, "role": role, "leader": leader, "epoch": answer.body["epoch"],
            })),
            false => app.out.line(format!("{instance} leads")),
        }
        return Ok(());
    }
    let message = match (role, leader) {
        (None, _) => format!("{instance} at {node} takes no part in leadership"),
        (Some(_), Some(leader)) => format!("{instance} at {node} does not lead; {leader} does"),
        (Some(_), None) => format!("{instance} at {node} does not lead, and does not know who does"),
    };
    Err(not_leader(message))
}

fn not_leader(message: String) -> Failure {
    Failure::new(Exit::NotLeader, "NOT_LEADER", message)
}

impl StepDown {
    async fn run(&self, app: &App) -> Result<()> {
        let node = app.node()?;
        // Before, because a successor may have begun by the time we can ask again.
        let ended = match self.wait {
            true => view::ask(&node, 1).await?.terms.first().map(|term| term.epoch),
            false => None,
        };
        let answer = node.post("/api/v1/leader/step-down").await?;
        match (answer.status, answer.text("/error/code")) {
            (200..=299, _) => {}
            (_, Some("NOT_LEADER")) => {
                let message = answer.text("/error/message").unwrap_or("this node does not lead");
                return Err(
                    not_leader(message.to_owned()).help("ask the leader: 'stargate leader status' tells who")
                );
            }
            _ => return Err(view::unexpected(&node, &answer)),
        }
        let view = view::ask(&node, 1).await?;
        app.out.note(format!("{} has stepped down", view.instance.as_deref().unwrap_or("the node")));
        let view = if self.wait { self.successor(&node, ended).await? } else { view };
        match app.out.json {
            true => app.out.json(&view),
            false => app.out.line(view.headline()),
        }
        Ok(())
    }

    /// Waits for a term that began after the given one.
    async fn successor(&self, node: &Node, ended: Option<u64>) -> Result<LeaderView> {
        let started = Instant::now();
        loop {
            // The store knows of a term before this node hears who leads.
            let view = view::ask(node, 1).await?;
            let newer =
                view.terms.first().is_some_and(|term| Some(term.epoch) > ended && term.ended_at.is_none());
            if newer && view.leader.is_some() {
                return Ok(view);
            }
            if started.elapsed() >= self.timeout {
                let message = format!("nobody leads after {}", output::short(self.timeout));
                return Err(Failure::new(Exit::TimedOut, "TIMED_OUT", message)
                    .help("'stargate leader status' tells what troubles the node"));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

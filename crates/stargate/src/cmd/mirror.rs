//! `stargate mirror …`: pushes on what was pushed here, and shows, compares and repairs.

mod compare;
mod dead_letter;
pub(crate) mod overview;
mod permit;
mod remote;
mod run;
mod status;
mod wait;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use stargate_git::RemoteName;

use crate::failure::Result;
use crate::mirroring::{Places, Target};
use crate::run::App;

/// `mirror …`
#[derive(Debug, Subcommand)]
pub(crate) enum MirrorCommand {
    /// Push what waits in the journal of a repository to its remote, and go on as more comes in
    Run(run::Run),
    /// How far the remote is behind, why, and when it will have caught up
    #[command(
        after_help = "Examples:\n  stargate mirror status\n  stargate mirror status --repo tools --json"
    )]
    Status(status::Status),
    /// Wait until the remote has a commit
    Wait(wait::Wait),
    /// Compare the refs of both sides; with --repair bring forward those that can be
    Sync(compare::Sync),
    /// Journal pushes that no entry tells of; a running mirror does that by itself
    #[command(after_help = "Example:\n  stargate mirror reconcile --repo tools\n\n\
        Works while a mirror runs. What is journaled is pushed by the mirror.")]
    Reconcile(At),
    /// Prove, ref by ref, that the remote has what this repository has; exits 1 if not
    #[command(after_help = "Example:\n  stargate mirror verify --repo tools --json")]
    Verify(At),
    /// Entries that were given up
    #[command(subcommand)]
    DeadLetter(dead_letter::DeadLetterCommand),
}

/// Which repository and which remote of it.
#[derive(Debug, Args)]
pub(crate) struct At {
    /// A bare repository: its directory, or its name below git.root
    #[arg(long, value_name = "DIR|NAME")]
    repo: PathBuf,
    /// The remote, by its name in the repository [env: STARGATE_MIRROR_REMOTE] [default: github-origin]
    #[arg(long, value_name = "NAME", value_parser = RemoteName::parse)]
    remote: Option<RemoteName>,
}

impl MirrorCommand {
    /// Whether the command stays until it is told to end.
    pub(crate) fn stays(&self) -> bool {
        matches!(self, Self::Run(run) if !run.once)
    }

    /// Whether a node can do it; the rest needs the repository itself.
    pub(crate) fn goes_through_a_node(&self) -> bool {
        matches!(self, Self::Status(_) | Self::Verify(_) | Self::DeadLetter(_))
    }

    /// Runs the command.
    pub(crate) async fn run(&self, app: &App) -> Result<()> {
        if let Some(node) = &app.remote {
            return remote::run(self, app, node).await;
        }
        match self {
            Self::Run(run) => run.run(app).await,
            Self::Status(status) => status.run(app).await,
            Self::Wait(wait) => wait.run(app).await,
            Self::Sync(sync) => sync.run(app).await,
            Self::Reconcile(at) => compare::reconcile(app, at).await,
            Self::Verify(at) => compare::verify(app, at).await,
            Self::DeadLetter(command) => command.run(app).await,
        }
    }
}

impl At {
    /// The repository, which need not have the remote.
    async fn repository(&self, app: &App) -> Result<Target> {
        Places::of(&app.settings).with_remote(self.remote.clone()).find(&self.repo).await
    }

    /// The repository, which must have the remote.
    async fn target(&self, app: &App) -> Result<Target> {
        self.repository(app).await?.with_remote()
    }
}

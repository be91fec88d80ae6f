//! `stargate hook …`: what a repository's hooks hand over to, and writing them anew.

use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use stargate_gateway::hook::{Context, RepoAncestry, post_receive, pre_receive};
use stargate_git::RepoDir;

use crate::config::layer::Environment;
use crate::config::{self, Flags};
use crate::failure::{Failure, Result};
use crate::gateway;
use crate::hooks::{TOLD, Told};
use crate::output::Output;

/// The commands that git has called, not people.
pub(crate) const BY_GIT: [&str; 2] = ["pre-receive", "post-receive"];

/// `hook …`
#[derive(Debug, Args)]
pub(crate) struct Hook {
    /// Where the settings are relative to; written into the hooks
    #[arg(long = "in", value_name = "DIR", hide = true)]
    directory: Option<PathBuf>,
    #[command(subcommand)]
    command: HookCommand,
}

#[derive(Debug, Subcommand)]
enum HookCommand {
    /// Write the hooks of repositories anew, for a program or configuration that has moved
    #[command(after_help = "\
A pre-receive or post-receive of somebody else is kept beside ours as NAME.before-stargate; git does not run it any more.

Examples:
  stargate hook install team/tools
  stargate hook install --all")]
    Install(Install),
    /// Called by git before refs move: exits 0, 1 (refused), 5 (cannot be checked) or 9 (not the leader)
    #[command(hide = true)]
    PreReceive,
    /// Called by git after refs have moved: records the push; always exits 0
    #[command(hide = true)]
    PostReceive,
}

/// `hook install`
#[derive(Debug, Args)]
struct Install {
    /// Repositories, as listed
    #[arg(required_unless_present = "all")]
    names: Vec<String>,
    /// All of them
    #[arg(long, conflicts_with = "names")]
    all: bool,
}

impl Hook {
    /// Runs the command; git looks at the exit code.
    pub(crate) async fn run(&self, flags: Flags, out: Output) -> Result<ExitCode> {
        match &self.command {
            HookCommand::Install(install) => install.run(flags, out).map(|()| ExitCode::SUCCESS),
            HookCommand::PreReceive => self.pre_receive(flags).await,
            HookCommand::PostReceive => {
                // The push is accepted, whatever happens here.
                if let Err(failure) = self.post_receive(flags).await {
                    out.failure(&failure);
                    out.note("stargate: warning: the push was accepted but not recorded");
                }
                Ok(ExitCode::SUCCESS)
            }
        }
    }

    async fn pre_receive(&self, flags: Flags) -> Result<ExitCode> {
        let (told, repo) = self.situation(flags)?;
        let context = Context::read(|name| std::env::var_os(name));
        let (rules, node) = (told.rules(&context, repo.path())?, told.node()?);
        let ancestry = RepoAncestry::new(told.git(), repo, &context);
        let input = BufReader::new(std::io::stdin());
        let pusher = std::io::stderr();
        let code = pre_receive::run(input, pusher, &context, &rules, &ancestry, &node).await;
        Ok(ExitCode::from(code))
    }

    async fn post_receive(&self, flags: Flags) -> Result<()> {
        let (told, repo) = self.situation(flags)?;
        let context = Context::read(|name| std::env::var_os(name));
        let journaling = told.journaling(repo.path())?;
        let sink = told.sink(repo.path())?;
        let input = BufReader::new(std::io::stdin());
        post_receive::run(input, std::io::stderr(), &context, &journaling, &sink).await;
        // To close a store is to wait for what it was asked for; the pusher was told by now that this was too late. What is written is
        // whole without it, and the process ends here.
        std::mem::forget(sink);
        Ok(())
    }

    /// What this hook was told, or reads itself, and the repository that git has started it in.
    fn situation(&self, flags: Flags) -> Result<(Told, RepoDir)> {
        let here =
            std::env::current_dir().map_err(|error| Failure::io("cannot find the repository", &error))?;
        let repo = RepoDir::open(&here).map_err(|error| Failure::input(error.to_string()))?;
        if let Some(told) = Told::read(std::env::var_os(TOLD))? {
            return Ok((told, repo));
        }
        if let Some(directory) = &self.directory {
            enter(directory)?;
        }
        let settings = config::load(flags, &Environment::of_process())?;
        Ok((Told::of(&settings)?, repo))
    }
}

fn enter(directory: &Path) -> Result<()> {
    std::env::set_current_dir(directory)
        .map_err(|error| Failure::io(format!("cannot enter {}", directory.display()), &error))
}

impl Install {
    fn run(&self, flags: Flags, out: Output) -> Result<()> {
        let settings = config::load(flags, &Environment::of_process())?;
        let repositories = gateway::repositories(&settings)?;
        let failure = |error| gateway::failure(&error);
        let names = match self.all {
            true => repositories.list().map_err(failure)?,
            false => self.names.iter().map(|name| super::repo::name(name)).collect::<Result<_>>()?,
        };
        let mut kept = Vec::new();
        for name in &names {
            let hooks = repositories.install_hooks(name).map_err(failure)?;
            kept.extend(hooks.into_iter().map(|path| (name, path)));
        }
        if out.json {
            out.json(&serde_json::json!({
                "installed": names.iter().map(|name| name.as_str()).collect::<Vec<_>>(),
                "kept": kept
                    .iter()
                    .map(|(name, path)| serde_json::json!({ "repo": name.as_str(), "path": path }))
                    .collect::<Vec<_>>(),
            }));
            return Ok(());
        }
        for (name, path) in &kept {
            out.line(format!(
                "{name} had a hook of its own, which does not run any more: {}",
                path.display()
            ));
        }
        let what = if names.len() == 1 { "repository" } else { "repositories" };
        out.line(format!("hooks of {} {what} are written", names.len()));
        Ok(())
    }
}

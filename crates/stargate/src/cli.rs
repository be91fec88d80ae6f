//! The command line: every command, option and example.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use url::Url;

use crate::cmd;
use crate::config::directives::Engine;
use crate::config::{Flags, LogFormat};
use crate::node;

/// Takes work in and does not let go of it until it is done and recorded.
#[derive(Debug, Parser)]
#[command(name = "stargate", version, subcommand_required = true, arg_required_else_help = true)]
#[command(disable_help_subcommand = true)]
#[command(max_term_width = 100, after_help = AFTER)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// What the arguments say. git starts two hooks for every push, which do little else than start: for them the command line
    /// is put together without the other commands.
    pub(crate) fn of(arguments: &[OsString]) -> Result<Self, clap::Error> {
        let is_hook = arguments.last().is_some_and(|last| cmd::hook::BY_GIT.iter().any(|name| last == name));
        if is_hook
            && let Ok(HookCli { global, command: HookOnly::Hook(hook) }) = HookCli::try_parse_from(arguments)
        {
            return Ok(Self { global, command: Command::Hook(hook) });
        }
        // Whoever says something else is told by the whole of it.
        Self::try_parse_from(arguments)
    }
}

/// As much of the command line as a hook needs.
#[derive(Debug, Parser)]
struct HookCli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: HookOnly,
}

#[derive(Debug, Subcommand)]
enum HookOnly {
    Hook(cmd::hook::Hook),
}

const AFTER: &str = "\
Start here:
  stargate demo                          see it work, nothing to set up
  stargate up                            run everything in this directory
  stargate job enqueue mail '{\"to\": 7}'  hand it a job of a kind in stargate.toml
  stargate explain 42                    why is job 42 not running?
  stargate help NOT_LEADER               what does this error code mean?
  stargate top                           how it goes, live
  stargate job list --url https://HOST   the same commands, through a running node

Settings come from, in this order: a flag, the environment, stargate.toml (--config,
else the working directory, else /etc/stargate/), the default.
'stargate config show' tells which one decided.

Exit codes: 0 ok, 1 failed, 2 usage or configuration, 3 not found, 4 conflict,
5 bad input or input/output error, 9 not the leader, 10 timed out waiting,
11 sync refused, 130 interrupted.";

/// Options of every command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Configuration file [default: ./stargate.toml, else /etc/stargate/stargate.toml]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Where jobs are kept: sqlite:PATH or postgres://… [env: STARGATE_STORE, DATABASE_URL] [default: HOME/stargate.db]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// Directory for everything Stargate keeps [env: STARGATE_HOME] [default: .stargate]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) home: Option<PathBuf>,
    /// Work through the node at this URL instead of beside the store [env: STARGATE_URL]
    // The name is its own: a command may have a URL of another type among its arguments.
    #[arg(id = "node_url", long = "url", global = true, value_name = "URL", value_parser = node::parse_url)]
    pub(crate) url: Option<Url>,
    /// File with the token for that node [env: STARGATE_TOKEN (the token itself), STARGATE_TOKEN_FILE]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Print JSON with stable fields, errors too
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Colours; NO_COLOR is honoured
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: ColorWhen,
    /// How log lines look [env: STARGATE_LOG] [default: human]
    #[arg(long, global = true, value_name = "FORMAT")]
    pub(crate) log: Option<LogFormat>,
    /// More log lines; twice for even more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

impl Global {
    /// What the command line says about settings.
    pub(crate) fn flags(&self, command: &Command) -> Flags {
        let mut flags = Flags {
            config: self.config.clone(),
            store: self.store.clone(),
            home: self.home.clone(),
            log: self.log,
            ..Flags::default()
        };
        match command {
            Command::Up(serving) | Command::Worker(serving) => {
                flags.listen = serving.listen;
                flags.workers = serving.workers;
                flags.queues = Some(serving.queues.clone()).filter(|queues| !queues.is_empty());
                flags.engine = serving.engine;
            }
            Command::Serve(listening) => flags.listen = listening.listen,
            Command::Directive(directive) => flags.engine = directive.engine(),
            _ => {}
        }
        flags
    }
}

/// When to use colours. The values carry no text of their own, which keeps the help short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorWhen {
    Auto,
    Always,
    Never,
}

/// Options of `serve`.
#[derive(Debug, Args, Default)]
pub(crate) struct Listening {
    /// Address for HTTP; others than 127.0.0.1 need a token first [env: STARGATE_LISTEN] [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
}

/// Options of commands that run jobs.
#[derive(Debug, Args, Default)]
pub(crate) struct Serving {
    /// Address for HTTP; others than 127.0.0.1 need a token first [env: STARGATE_LISTEN]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
    /// Jobs run at once [env: STARGATE_WORKERS, MAX_CONCURRENCY] [default: 4]
    #[arg(long, value_name = "N")]
    pub(crate) workers: Option<u64>,
    /// Serve only these queues, repeatable [env: STARGATE_QUEUES] [default: all]
    #[arg(long = "queue", value_name = "QUEUE", value_delimiter = ',')]
    pub(crate) queues: Vec<String>,
    /// What executes directives [env: STARGATE_ENGINE] [default: embedded]
    #[arg(long, value_enum, value_name = "ENGINE")]
    pub(crate) engine: Option<Engine>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run everything in one process: API, git, worker pool; scheduler and mirror while it leads
    #[command(
        after_help = "Examples:\n  stargate up\n  stargate up --listen 127.0.0.1:9000 --workers 16\n\n\
        Stops on Ctrl-C or SIGTERM: leadership is handed over at once, running jobs get the shutdown \
        timeout, then they are handed back."
    )]
    Up(Serving),
    /// Run only the worker pool, with its own /metrics, /healthz and /readyz
    #[command(after_help = "Examples:\n  stargate worker --store postgres://db/app --workers 32\n  \
        stargate worker --queue mail --queue reports\n\nListens on 127.0.0.1:9090 unless told otherwise.")]
    Worker(Serving),
    /// Run only the HTTP side
    #[command(after_help = "Example:\n  stargate serve --store postgres://db/app --listen 127.0.0.1:8080")]
    Serve(Listening),
    /// See it work: a fresh home filled with one example of each kind of work
    Demo(cmd::demo::Demo),
    /// Enqueue, look at and steer jobs
    #[command(subcommand)]
    Job(cmd::job::JobCommand),
    /// Look at queues, pause and resume them
    #[command(subcommand)]
    Queue(cmd::queue::QueueCommand),
    /// Cron schedules: durable, fired once across the fleet
    #[command(subcommand)]
    Schedule(cmd::schedule::ScheduleCommand),
    /// Limits per key: how many at once, how many per second, which share
    #[command(subcommand)]
    Limit(cmd::limit::LimitCommand),
    /// Which node leads: look, watch, check, hand over
    #[command(subcommand)]
    Leader(cmd::leader::LeaderCommand),
    /// Push on what was pushed here: run, watch, wait, compare, repair
    #[command(subcommand)]
    Mirror(cmd::mirror::MirrorCommand),
    /// Directives: what is ingested, how far it has come, and what was kept aside
    #[command(subcommand)]
    Directive(cmd::directive::DirectiveCommand),
    /// Repositories: make, list, take out of service
    #[command(subcommand)]
    Repo(cmd::repo::RepoCommand),
    /// Tokens: who may use the API and the repositories
    #[command(subcommand)]
    Token(cmd::token::TokenCommand),
    /// Webhooks: which servers are told of pushes
    #[command(subcommand)]
    Webhook(cmd::webhook::WebhookCommand),
    /// The hooks of repositories
    Hook(cmd::hook::Hook),
    /// Serve git to one SSH client, as the forced command of its key
    SshDispatch(cmd::ssh_dispatch::SshDispatch),
    /// Failed jobs by their cause, and having them run again
    Failures(cmd::failures::Failures),
    /// Tell why a job is not running or what an error code means, and what to do about it
    #[command(after_help = "Examples:\n  stargate explain 42\n  stargate explain NOT_LEADER")]
    Explain(cmd::explain::Explain),
    /// How it goes, live: problems, throughput, queues, jobs, failures, workers, leader, mirrors
    Top(cmd::top::Top),
    /// List the worker processes the store knows
    Workers,
    /// Bring the store's schema up to date; forward only
    Migrate,
    /// Move the store to another place
    #[command(subcommand)]
    Store(cmd::store::StoreCommand),
    /// Remove finished jobs beyond their retention
    Purge(cmd::purge::Purge),
    /// What executions left behind in their scratch directories
    #[command(subcommand)]
    Scratch(cmd::scratch::ScratchCommand),
    /// Who changed what
    Audit(cmd::audit::Audit),
    /// Check everything a support engineer would ask for
    #[command(after_help = "Exits 1 when a check fails, so it can gate a deployment.")]
    Doctor,
    /// Write everything a support engineer would ask for into one archive, without secrets
    Bundle(cmd::bundle::Bundle),
    /// The effective settings
    #[command(subcommand)]
    Config(cmd::config::ConfigCommand),
    /// Break something on purpose, where it harms nobody, and see how long recovery takes
    #[command(subcommand)]
    Drill(cmd::drill::DrillCommand),
    /// Measure the queue on this machine
    #[command(subcommand)]
    Bench(cmd::bench::BenchCommand),
    /// The help of a command, or what an error code means
    Help(cmd::help::Help),
    /// Print a completion script for a shell
    #[command(after_help = "Example:\n  stargate completions bash > /etc/bash_completion.d/stargate")]
    Completions(cmd::docs::Completions),
    /// Write the manual pages
    #[command(
        after_help = "Examples:\n  stargate man | man -l -\n  stargate man --dir /usr/local/share/man/man1"
    )]
    Man(cmd::docs::Man),
    /// Generate reference pages
    #[command(subcommand, hide = true)]
    Docs(cmd::docs::DocsCommand),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of a command line.
    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn a_hook_is_understood_with_a_part_of_the_command_line_as_with_the_whole() {
        for name in cmd::hook::BY_GIT {
            let line = words(&format!("stargate --config /c.toml --home /h hook --in /h {name}"));
            let (part, whole) = (Cli::of(&line).unwrap(), Cli::try_parse_from(&line).unwrap());
            assert_eq!(format!("{part:?}"), format!("{whole:?}"));
            assert!(HookCli::try_parse_from(&line).is_ok(), "the part is enough");
        }
    }

    #[test]
    fn other_commands_may_end_like_a_hook() {
        let cli = Cli::of(&words("stargate repo create post-receive")).unwrap();
        assert!(matches!(cli.command, Command::Repo(_)), "{cli:?}");
        let error = Cli::of(&words("stargate hok post-receive")).unwrap_err();
        assert!(error.to_string().contains("hook"), "the whole of it knows what is meant: {error}");
    }
}

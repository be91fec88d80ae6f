//! From the arguments to the exit code.

use std::process::ExitCode;
use std::sync::Arc;

use stargate_queue::SharedStore;

use crate::assemble::{self, Migrate, Stores};
use crate::cli::{Cli, ColorWhen, Command, Global};
use crate::cmd;
use crate::cmd::directive::DirectiveCommand;
use crate::config::layer::Environment;
use crate::config::{self, Settings};
use crate::failure::{Exit, Failure, Result};
use crate::node::Node;
use crate::output::Output;
use crate::reach;
use crate::remote::Remote;

/// What every command is given.
pub(crate) struct App {
    pub(crate) settings: Arc<Settings>,
    pub(crate) out: Output,
    /// The node that does the work; absent: the command does it, in the store of this configuration.
    pub(crate) remote: Option<Arc<Node>>,
}

impl App {
    /// The jobs: through the node that was named, else in the store of this configuration.
    pub(crate) async fn jobs(&self) -> Result<SharedStore> {
        match &self.remote {
            Some(node) => Ok(Arc::new(Remote::new(Arc::clone(node)))),
            None => assemble::open(&self.settings, Migrate::No).await,
        }
    }

    /// The store of this configuration in all its parts.
    pub(crate) async fn stores(&self) -> Result<Stores> {
        assemble::open_all(&self.settings, Migrate::No).await
    }

    /// The node that was named, else the one of this configuration.
    pub(crate) fn node(&self) -> Result<Arc<Node>> {
        match &self.remote {
            Some(node) => Ok(Arc::clone(node)),
            None => Ok(Arc::new(Node::of(&self.settings)?)),
        }
    }
}

/// Parses, runs, reports.
pub(crate) fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    let cli = match Cli::of(&arguments) {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    match cli.global.color {
        ColorWhen::Auto => {}
        ColorWhen::Always => anstream::ColorChoice::Always.write_global(),
        ColorWhen::Never => anstream::ColorChoice::Never.write_global(),
    }
    let out = Output { json: cli.global.json };
    match run(cli, out) {
        Ok(code) => code,
        Err(failure) => {
            out.failure(&failure);
            ExitCode::from(failure.exit as u8)
        }
    }
}

/// Help and version are answers; the rest is a mistake, told as JSON where JSON was asked for.
fn usage(error: &clap::Error) -> ExitCode {
    let asked_json = std::env::args_os().any(|argument| argument == "--json");
    if error.use_stderr() && asked_json {
        let message = error.render().to_string();
        let first = message.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        let failure = Failure::new(Exit::Usage, "USAGE", first).help("add --help for what is possible");
        Output { json: true }.failure(&failure);
        return ExitCode::from(Exit::Usage as u8);
    }
    drop(error.print());
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

fn run(cli: Cli, out: Output) -> Result<ExitCode> {
    let Cli { global, command } = cli;
    // These need neither settings nor a runtime.
    let command = match command {
        Command::Help(help) => return help.run(out).map(succeeded),
        Command::Completions(completions) => return completions.run(out).map(succeeded),
        Command::Man(man) => return man.run(out).map(succeeded),
        Command::Docs(docs) => return docs.run(out).map(succeeded),
        Command::Directive(DirectiveCommand::Schema) => {
            cmd::directive::schema(out);
            return Ok(ExitCode::SUCCESS);
        }
        other => other,
    };
    let mut runtime = match &command {
        // Every push waits for its hooks, which do one thing after the other: threads would only cost time.
        Command::Hook(_) => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = runtime
        .enable_all()
        .thread_name("stargate")
        .build()
        .map_err(|error| Failure::io("cannot start threads", &error))?;
    let ended = runtime.block_on(async {
        let flags = global.flags(&command);
        match command {
            // git and OpenSSH look at the exit code, and what is said goes to somebody else's terminal: no log lines.
            Command::Hook(hook) => hook.run(flags, out).await,
            Command::SshDispatch(dispatch) => dispatch.run(flags).await,
            other => dispatch(global, other, out).await.map(succeeded),
        }
    });
    crate::otel::flush();
    // Blocking readers (standard input, a name look-up) must not hold up the end.
    runtime.shutdown_background();
    ended
}

fn succeeded((): ()) -> ExitCode {
    ExitCode::SUCCESS
}

async fn dispatch(global: Global, command: Command, out: Output) -> Result<()> {
    let remote = reach::remote(&global, &command)?;
    if let Command::Demo(demo) = &command {
        return demo.run(&global, out).await;
    }
    let stays = match &command {
        Command::Up(_) | Command::Worker(_) | Command::Serve(_) => true,
        Command::Mirror(mirror) => mirror.stays(),
        _ => false,
    };
    let settings = config::load(global.flags(&command), &Environment::of_process())?;
    crate::log::install(&settings, global.verbose, !stays)?;
    crate::otel::install(&settings)?;
    let app = App { settings: Arc::new(settings), out, remote };
    match command {
        Command::Up(_) => cmd::serve::up(&app).await,
        Command::Worker(_) => cmd::serve::worker(&app).await,
        Command::Serve(_) => cmd::serve::serve(&app).await,
        Command::Job(job) => job.run(&app).await,
        Command::Queue(queue) => queue.run(&app).await,
        Command::Schedule(schedule) => schedule.run(&app).await,
        Command::Limit(limit) => limit.run(&app).await,
        Command::Leader(leader) => leader.run(&app).await,
        Command::Repo(repo) => repo.run(&app).await,
        Command::Token(token) => token.run(&app).await,
        Command::Webhook(webhook) => webhook.run(&app).await,
        Command::Mirror(mirror) => mirror.run(&app).await,
        Command::Directive(directive) => directive.run(&app).await,
        Command::Failures(failures) => failures.run(&app).await,
        Command::Explain(explain) => explain.run(&app).await,
        Command::Top(top) => top.run(&app).await,
        Command::Audit(audit) => audit.run(&app).await,
        Command::Bundle(bundle) => bundle.run(&app).await,
        Command::Workers => cmd::workers::run(&app).await,
        Command::Migrate => cmd::migrate::run(&app).await,
        Command::Store(store) => store.run(&app).await,
        Command::Purge(purge) => purge.run(&app).await,
        Command::Scratch(scratch) => scratch.run(&app).await,
        Command::Doctor => cmd::doctor::run(&app).await,
        Command::Config(config) => {
            config.run(&app);
            Ok(())
        }
        Command::Bench(bench) => bench.run(&app).await,
        Command::Drill(drill) => drill.run(&app).await,
        Command::Demo(_)
        | Command::Help(_)
        | Command::Completions(_)
        | Command::Man(_)
        | Command::Docs(_)
        | Command::Hook(_)
        | Command::SshDispatch(_) => Ok(()),
    }
}

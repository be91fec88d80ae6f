//! `stargate-chaos`: what `cargo xtask chaos` and `cargo xtask soak` start.
#![expect(clippy::print_stdout, reason = "a command-line program talks to people on stdout")]

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Args, Parser, Subcommand};
use stargate_chaos::{Kind, Namespaces, Options, Soak, rivals, soak};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Debug, Parser)]
#[command(name = "stargate-chaos", about = "The whole product under seeded faults")]
struct Cli {
    #[command(subcommand)]
    command: Subject,
}

#[derive(Debug, Subcommand)]
enum Subject {
    /// Break things while users work, heal, and judge every invariant by what is found outside
    Run(Run),
    /// The same load for a long time, and what grows meanwhile
    Soak(SoakArgs),
    /// Other queues beside ours: workers killed again and again, the database restarted
    Rivals(RivalsArgs),
}

#[derive(Debug, Args)]
struct RivalsArgs {
    /// Where npm and pip put them
    #[arg(long, default_value = "target/chaos-rivals")]
    folder: PathBuf,
    /// Only these, by the beginning of their names; repeatable [default: all]
    #[arg(long)]
    only: Vec<String>,
    /// The program under test [default: the one beside this one]
    #[arg(long)]
    stargate: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct SoakArgs {
    /// How long
    #[arg(long, default_value_t = 120.0)]
    minutes: f64,
    /// On Postgres instead of SQLite
    #[arg(long)]
    postgres: bool,
    /// Hold a transaction open for the whole run
    #[arg(long)]
    pinned: bool,
    /// Jobs a second [default: as many as are done]
    #[arg(long)]
    rate: Option<u32>,
    /// The program under test [default: the one beside this one]
    #[arg(long)]
    stargate: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Run {
    /// Decides the faults and what users do [default: a random one, which is printed]
    #[arg(long)]
    seed: Option<u64>,
    /// How long faults go on, on each site
    #[arg(long, default_value_t = 2.0)]
    minutes: f64,
    /// The same in seconds
    #[arg(long, conflicts_with = "minutes")]
    seconds: Option<u64>,
    /// No more faults than these, on each site
    #[arg(long)]
    faults: Option<u64>,
    /// Only these installations; repeatable [default: all]
    #[arg(long = "site", value_enum)]
    sites: Vec<Kind>,
    /// Only these faults, by name (redis:kill) or target (redis); repeatable
    #[arg(long)]
    only: Vec<String>,
    /// The program under test [default: the one beside this one]
    #[arg(long)]
    stargate: Option<PathBuf>,
    /// Keep what came of it as a page of the documentation
    #[arg(long)]
    store: bool,
}

/// Where it is kept.
const PAGE: &str = "docs/chaos.md";

fn main() -> Result<ExitCode> {
    let cli = Cli::parse();
    let beside = std::env::current_exe().context("cannot find this program")?.with_file_name("stargate");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(8).build()?;
    let well = match cli.command {
        Subject::Run(args) => {
            if let Some(namespaces) = Namespaces::find() {
                return start_over(namespaces);
            }
            let store = args.store;
            let options = args.options(beside);
            println!("seed {}", options.seed);
            let report = runtime.block_on(unless_asked_to_end(stargate_chaos::run(&options)))?;
            println!("{}", report.text());
            if store {
                std::fs::write(PAGE, report.page(&stargate_chaos::commit()?))
                    .context("cannot write the page")?;
            }
            report.is_well()
        }
        Subject::Soak(SoakArgs { minutes, postgres, pinned, rate, stargate }) => {
            let time = Duration::from_secs_f64(minutes * 60.0);
            let binary = stargate.unwrap_or(beside);
            let options = Soak { binary, time, postgres, pinned, rate };
            runtime.block_on(unless_asked_to_end(soak(&options)))?
        }
        Subject::Rivals(RivalsArgs { folder, only, stargate }) => {
            let folder = std::path::absolute(folder)?;
            rivals(&std::path::absolute(stargate.unwrap_or(beside))?, &folder, &only)?;
            true
        }
    };
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Run {
    fn options(self, beside: PathBuf) -> Options {
        let all = vec![Kind::Sqlite, Kind::Postgres, Kind::Temporal];
        Options {
            binary: self.stargate.unwrap_or(beside),
            seed: self.seed.unwrap_or_else(|| u64::from(rand::random::<u32>())),
            time: self
                .seconds
                .map_or_else(|| Duration::from_secs_f64(self.minutes * 60.0), Duration::from_secs),
            faults: self.faults,
            sites: if self.sites.is_empty() { all } else { self.sites },
            only: self.only,
        }
    }
}

/// Gives the work up when asked to end: nodes and servers of the run go with what owns them, and would be left behind otherwise.
async fn unless_asked_to_end<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    tokio::select! {
        done = work => done,
        _ = terminated.recv() => bail!("asked to end"),
        _ = interrupted.recv() => bail!("interrupted"),
    }
}

/// Starts over with disks and a network that nobody else sees.
fn start_over(namespaces: Namespaces) -> Result<ExitCode> {
    let mut command = namespaces.command();
    command.arg(std::env::current_exe()?).args(std::env::args_os().skip(1));
    Err(command.exec()).context("cannot start over in namespaces of our own")
}

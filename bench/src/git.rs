//! The git side: the gateway beside `git http-backend`, what hooks add to a push, how soon a push is on the mirror, and
//! draining a journal beside `git push` in a loop.
//!
//! Everything is measured from outside, on the real binary with a stock git. Those that are compared take turns, and
//! which of them comes first changes as well.

mod backend;
pub(crate) mod client;
mod crowd;
mod drain;
mod gateway;
mod hook;
pub(crate) mod node;
mod visible;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::{Args, ValueEnum};

use self::client::Client;

/// What a mirrored ref is called.
const MIRRORED: &str = "refs/kv/main";
/// How far the mirror is, on the other side.
const WATERMARK: &str = "refs/kv-mirror/main";

/// `git`
#[derive(Args)]
pub(crate) struct Options {
    /// The program stargate; if none is named, the one in the folder of this program.
    #[arg(long)]
    stargate: Option<PathBuf>,
    /// The program python3, which runs the CGI server.
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// A Postgres server on which a database may be made, for what hooks add there.
    #[arg(long, env = "STARGATE_TEST_POSTGRES_URL", hide_env_values = true)]
    url: Option<String>,
    /// What to measure; everything if nothing is named.
    #[arg(long, value_enum)]
    only: Vec<Part>,
    /// Data that is pushed and cloned, in MiB.
    #[arg(long, default_value_t = 64)]
    mib: u64,
    /// Data that many clone at once, in MiB.
    #[arg(long, default_value_t = 8)]
    crowd_mib: u64,
    /// Rounds of everything that is compared; the median is reported.
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// Small pushes, for what hooks add and for the time until the mirror has them.
    #[arg(long, default_value_t = 40)]
    pushes: usize,
    /// Rounds of the drain [default: as many as of the rest]
    #[arg(long)]
    drain_repeats: Option<usize>,
    /// Entries that are drained one by one in each round.
    #[arg(long, default_value_t = 100)]
    entries: usize,
    /// Entries that are drained with coalescing in each round.
    #[arg(long, default_value_t = 10_000)]
    backlog: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Gateway,
    Crowd,
    Hook,
    Visible,
    Drain,
}

impl Options {
    fn wants(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }
}

pub(crate) async fn run(options: &Options) -> Result<()> {
    let drains = options.drain_repeats.unwrap_or(options.repeats);
    let counts = [options.repeats, options.pushes, drains, options.entries, options.backlog];
    ensure!(
        options.mib > 0 && options.crowd_mib > 0 && !counts.contains(&0),
        "nothing can be measured with 0 of something"
    );
    let stargate = program_of(options.stargate.as_deref())?;
    let client = Client::new()?;
    println!("{}, {}", client.git(client.home(), &["--version"]).await?, stargate.display());
    if options.wants(Part::Gateway) {
        gateway::run(&client, &stargate, &options.python, options.mib, options.repeats).await?;
    }
    if options.wants(Part::Crowd) {
        crowd::run(&client, &stargate, options.crowd_mib).await?;
    }
    if options.wants(Part::Hook) {
        hook::run(&client, &stargate, options.url.as_deref(), options.pushes).await?;
    }
    if options.wants(Part::Visible) {
        visible::run(&client, &stargate, options.pushes).await?;
    }
    if options.wants(Part::Drain) {
        let sizes = drain::Sizes { entries: options.entries, backlog: options.backlog };
        drain::run(&client, &stargate, &sizes, drains).await?;
    }
    Ok(())
}

/// The program stargate: the one that is named, or the one in the folder of this program.
pub(crate) fn program_of(named: Option<&Path>) -> Result<PathBuf> {
    let stargate = match named {
        Some(path) => path.canonicalize().with_context(|| format!("no program {}", path.display()))?,
        None => std::env::current_exe()?.with_file_name("stargate"),
    };
    let missing = "build it first: cargo build --release --package stargate";
    ensure!(stargate.is_file(), "there is no {}; {missing}", stargate.display());
    Ok(stargate)
}

/// The places `0..count`, beginning with another one in each round: whoever comes later finds the machine as the
/// others left it.
pub(crate) fn in_turn(count: usize, round: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |place| (place + round) % count)
}

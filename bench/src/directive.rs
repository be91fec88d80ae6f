//! A directive that loads a file into Postgres, beside dlt and a Singer target that load the same file.
//!
//! All of them start as their users start them, load into a new database of the same server, and take turns. What each
//! has written is counted and summed up before the next begins.

mod data;
mod ours;
pub(crate) mod peers;
mod table;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::{Args, ValueEnum};
use tempfile::TempDir;

use self::data::Data;
use self::ours::Ours;
use self::peers::Peers;
use crate::git::in_turn;
use crate::raw;
use crate::throughput::fresh_database;

/// `directive`
#[derive(Args)]
pub(crate) struct Options {
    /// The program stargate; if none is named, the one in the folder of this program.
    #[arg(long)]
    stargate: Option<PathBuf>,
    /// The program python3, which makes the environments of the peers.
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// A Postgres server on which a database may be made.
    #[arg(long, env = "STARGATE_TEST_POSTGRES_URL", hide_env_values = true)]
    url: String,
    /// What to measure; everything if nothing is named. Ratios need both sides.
    #[arg(long, value_enum)]
    only: Vec<Loader>,
    /// Rows to load.
    #[arg(long, default_value_t = 100_000)]
    rows: u64,
    /// Items of a page of the directive.
    #[arg(long, default_value_t = 500)]
    page_size: u32,
    /// Rounds; the median is reported.
    #[arg(long, default_value_t = 3)]
    repeats: usize,
}

/// Who loads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub(crate) enum Loader {
    /// A directive, store and rows in Postgres.
    Stargate,
    /// dlt with its defaults.
    Dlt,
    /// dlt, given Arrow tables.
    DltArrow,
    /// A Singer target with its defaults.
    SingerTarget,
    /// A directive that reads an HTTP API; for information.
    StargateHttp,
    /// A directive, store and rows in SQLite; for information.
    StargateSqlite,
}

impl Loader {
    fn name(self) -> &'static str {
        match self {
            Self::Stargate => "stargate",
            Self::Dlt => "dlt, defaults",
            Self::DltArrow => "dlt, Arrow",
            Self::SingerTarget => "Singer target",
            Self::StargateHttp => "stargate, http source",
            Self::StargateSqlite => "stargate, SQLite",
        }
    }
}

/// Seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Took {
    /// From the start of the program to its end.
    whole: f64,
    /// Of that the load, as the program itself measures it.
    load: f64,
    /// Of the program on the processor, without the database server.
    cpu: f64,
}

/// A load into a new database and the same once more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    first: Took,
    again: Took,
}

pub(crate) async fn run(options: &Options) -> Result<()> {
    ensure!(options.rows > 0 && options.repeats > 0, "nothing can be measured with 0 of something");
    let folder = tempfile::tempdir()?;
    let data = Data::write(folder.path(), options.rows)?;
    let bench = Bench::new(options, &data, &folder).await?;
    bench.say_settings().await?;
    let mut rounds = Vec::with_capacity(options.repeats);
    for round in 0..options.repeats {
        rounds.push(bench.round(round).await?);
    }
    table::print(&rounds, options.rows);
    Ok(())
}

/// What was measured in one round.
type Round = Vec<(Loader, Pair)>;

struct Bench<'a> {
    url: &'a str,
    loaders: Vec<Loader>,
    data: &'a Data,
    ours: Ours<'a>,
    peers: Peers<'a>,
}

impl<'a> Bench<'a> {
    async fn new(options: &'a Options, data: &'a Data, folder: &'a TempDir) -> Result<Self> {
        let all = Loader::value_variants();
        let wanted = |loader: &Loader| options.only.is_empty() || options.only.contains(loader);
        let loaders: Vec<Loader> = all.iter().copied().filter(wanted).collect();
        let ours =
            Ours { stargate: program(options)?, python: &options.python, data, page_size: options.page_size };
        let peers = Peers::install(&options.python, data, folder.path(), &loaders).await?;
        Ok(Self { url: &options.url, loaders, data, ours, peers })
    }

    async fn round(&self, round: usize) -> Result<Round> {
        let mut measured = Round::new();
        for place in in_turn(self.loaders.len(), round) {
            let loader = self.loaders[place];
            let pair = self.pair(loader).await.with_context(|| loader.name().to_owned())?;
            println!("  round {}: {:<22} {}", round + 1, loader.name(), table::seconds(&pair));
            measured.push((loader, pair));
        }
        Ok(measured)
    }

    async fn pair(&self, loader: Loader) -> Result<Pair> {
        if loader == Loader::StargateSqlite {
            return self.ours.sqlite().await;
        }
        let url = fresh_database(self.url).await?;
        let stage = match loader {
            Loader::Stargate => Stage::Ours(Box::new(self.ours.with_file(&url)?)),
            Loader::StargateHttp => Stage::Ours(Box::new(self.ours.with_http(&url).await?)),
            _ => Stage::Peer(self.peers.prepare(loader, &url)?),
        };
        let first = self.load(&stage, &url, true).await?;
        let again = self.load(&stage, &url, false).await?;
        Ok(Pair { first, again })
    }

    /// One load, measured and looked at.
    async fn load(&self, stage: &Stage<'_>, url: &str, is_first: bool) -> Result<Took> {
        let client = raw::connect(url).await?;
        // What was written before is not to be paid for by whoever comes next.
        client.batch_execute("checkpoint").await?;
        rustix::fs::sync();
        let (took, table) = match stage {
            Stage::Ours(stage) => (stage.load(self.data.rows, is_first).await?, ours::TABLE),
            Stage::Peer(stage) => (stage.load().await?, peers::TABLE),
        };
        let sum = format!("select count(*), sum(age)::bigint, count(distinct email) from {table}");
        let row = client.query_one(&sum, &[]).await?;
        let (count, ages, emails): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
        let rows = i64::try_from(self.data.rows)?;
        ensure!(
            (count, ages, emails) == (rows, self.data.ages, rows),
            "{count} rows with {emails} addresses and a sum of {ages}, not {rows} with {}",
            self.data.ages
        );
        Ok(took)
    }

    async fn say_settings(&self) -> Result<()> {
        let client = raw::connect(self.url).await?;
        let names = ["server_version", "fsync", "synchronous_commit", "full_page_writes", "shared_buffers"];
        let mut settings = Vec::new();
        for name in names {
            let row = client.query_one(&format!("show {name}"), &[]).await?;
            settings.push(format!("{name} {}", row.get::<_, String>(0)));
        }
        let megabytes = self.data.bytes as f64 / 1e6;
        println!(
            "{} rows, {megabytes:.1} MB of JSON lines; Postgres: {}",
            self.data.rows,
            settings.join(", ")
        );
        Ok(())
    }
}

/// Somebody who is ready to load.
enum Stage<'a> {
    Ours(Box<ours::Stage>),
    Peer(peers::Stage<'a>),
}

fn program(options: &Options) -> Result<PathBuf> {
    let path = match &options.stargate {
        Some(path) => path.canonicalize().with_context(|| format!("no program {}", path.display()))?,
        None => std::env::current_exe()?.with_file_name("stargate"),
    };
    let missing = "build it first: cargo build --release --package stargate";
    ensure!(path.is_file(), "there is no {}; {missing}", path.display());
    Ok(path)
}

/// Seconds that programs which we started and which have ended were on the processor.
fn children_cpu() -> Result<f64> {
    /// Of a second; the same on every Linux.
    const TICKS: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The second field is a name in brackets, which may contain anything.
    let (_, fields) = stat.rsplit_once(')').context("/proc/self/stat has no name")?;
    let ticks: Vec<f64> = fields.split_whitespace().skip(13).take(2).flat_map(str::parse).collect();
    ensure!(ticks.len() == 2, "/proc/self/stat is too short");
    Ok(ticks.iter().sum::<f64>() / TICKS)
}

/// Text that can stand in an argument or a file.
fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not text", path.display()))
}

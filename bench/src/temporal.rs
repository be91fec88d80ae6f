//! A directive on a Temporal cluster, beside the same directive on the embedded engine and beside a bare workflow of the
//! SDK that does nothing but call an activity, once for each page.
//!
//! All of them use one development server, which is started here and ends with the benchmark, and take turns.

mod bare;
mod ours;
mod server;
mod table;

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use clap::{Args, ValueEnum};

use self::bare::Bare;
use self::ours::Ours;
use self::server::Server;
use crate::git::in_turn;

/// More would make the bare loop's history longer than a server takes.
const PAGES_MAX: u32 = 5000;

/// `temporal`
#[derive(Args)]
pub(crate) struct Options {
    /// The program stargate; if none is named, the one in the folder of this program.
    #[arg(long)]
    stargate: Option<PathBuf>,
    /// Temporal's own program, whose development server is used.
    #[arg(long, env = "STARGATE_TEST_TEMPORAL_CLI", default_value = "temporal")]
    temporal: PathBuf,
    /// What to measure; everything if nothing is named. Ratios need both sides.
    #[arg(long, value_enum)]
    only: Vec<Subject>,
    /// Pages of each run, and activities of the bare loop.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=i64::from(PAGES_MAX)))]
    pages: u32,
    /// Records of a page.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    page_size: u32,
    /// Rounds; the median is reported.
    #[arg(long, default_value_t = 1)]
    repeats: usize,
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub(crate) enum Subject {
    /// A directive on the embedded engine.
    Embedded,
    /// A directive on the cluster, with an activity for each page.
    OnePage,
    /// A directive on the cluster, with default settings.
    Default,
    /// A workflow that calls an activity which does nothing, both on one queue.
    Bare,
    /// The same with the activity on another queue, as directives have it; for information.
    BareTwoQueues,
}

impl Subject {
    fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::OnePage => "temporal, a page an activity",
            Self::Default => "temporal, default",
            Self::Bare => "bare loop",
            Self::BareTwoQueues => "bare loop, two queues",
        }
    }
}

/// How long each took in one round, in seconds.
type Round = Vec<(Subject, f64)>;

pub(crate) async fn run(options: &Options) -> Result<()> {
    ensure!(options.repeats > 0, "nothing can be measured with 0 of something");
    let wanted = |subject: &Subject| options.only.is_empty() || options.only.contains(subject);
    let subjects: Vec<Subject> = Subject::value_variants().iter().copied().filter(wanted).collect();
    let folder = tempfile::tempdir()?;
    let server = Server::start(&options.temporal, folder.path()).await?;
    let stargate = program(options)?;
    let ours = Ours::new(&stargate, &server, folder.path(), options.pages, options.page_size)?;
    let bare = Bare { server: &server, activities: options.pages };
    println!(
        "{} pages of {}; {}",
        options.pages,
        options.page_size,
        server.version(&options.temporal).await?
    );
    let mut rounds = Vec::with_capacity(options.repeats);
    for round in 0..options.repeats {
        let mut measured = Round::new();
        for place in in_turn(subjects.len(), round) {
            let subject = subjects[place];
            let seconds = measure(subject, &ours, &bare).await.with_context(|| subject.name().to_owned())?;
            println!("  round {}: {:<30} {seconds:.2} s", round + 1, subject.name());
            measured.push((subject, seconds));
        }
        rounds.push(measured);
    }
    table::print(&rounds, &subjects, options.pages);
    Ok(())
}

fn program(options: &Options) -> Result<PathBuf> {
    let path = match &options.stargate {
        Some(path) => path.canonicalize().with_context(|| format!("no program {}", path.display()))?,
        None => std::env::current_exe()?.with_file_name("stargate"),
    };
    ensure!(
        path.is_file(),
        "there is no {}; build the package stargate in the same profile first",
        path.display()
    );
    Ok(path)
}

async fn measure(subject: Subject, ours: &Ours<'_>, bare: &Bare<'_>) -> Result<f64> {
    match subject {
        Subject::Embedded => ours.embedded().await,
        Subject::OnePage => ours.temporal(Some(1)).await,
        Subject::Default => ours.temporal(None).await,
        Subject::Bare => bare.run(false).await,
        Subject::BareTwoQueues => bare.run(true).await,
    }
}

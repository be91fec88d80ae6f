//! Everything, one after the other on one machine, and what became of it since the last stored run.
//!
//! Each part is a process of its own, as if it had been started by hand: what one leaves in memory is not measured by the next.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result};
use clap::Args;

use crate::page;
use crate::report::{Figure, NOTES};
use crate::results::{Facts, Part, Results};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Keep the results in the project: bench/results/last.json, docs/benchmarks.md and its charts
    #[arg(long)]
    store: bool,
    /// Only these parts; repeatable
    #[arg(long, conflicts_with = "store")]
    only: Vec<String>,
    /// The folder of the project
    #[arg(long, default_value = ".")]
    project: PathBuf,
    /// A tenth of the size, once: shows that everything runs, and no figures to compare
    #[arg(long, conflicts_with = "store")]
    quick: bool,
}

/// What is run, with which arguments, and with which instead when it has to be quick.
struct Plan {
    name: &'static str,
    arguments: &'static [&'static str],
    quick: &'static [&'static str],
}

const fn plan(
    name: &'static str,
    arguments: &'static [&'static str],
    quick: &'static [&'static str],
) -> Plan {
    Plan { name, arguments, quick }
}

/// Stands for the server that the run was given.
const POSTGRES: &str = "POSTGRES";

const PLANS: &[Plan] = &[
    plan("sqlite", &["sqlite"], &["sqlite", "--jobs", "5000", "--repeats", "1"]),
    plan("postgres", &["postgres"], &["postgres", "--jobs", "5000", "--repeats", "1"]),
    plan("growth-sqlite", &["growth"], &["growth", "--jobs", "20000"]),
    plan(
        "growth-postgres",
        &["growth", "--store", POSTGRES],
        &["growth", "--store", POSTGRES, "--jobs", "20000"],
    ),
    plan("scale", &["scale"], &["scale", "--jobs", "5000"]),
    plan("heartbeat", &["heartbeat"], &["heartbeat", "--beats", "50"]),
    plan("leader", &["leader"], &["leader", "--rounds", "2"]),
    plan("pages-sqlite", &["pages"], &["pages", "--jobs", "5000", "--repeats", "1", "--starts", "1"]),
    plan(
        "pages-postgres",
        &["pages", "--store", POSTGRES],
        &["pages", "--store", POSTGRES, "--jobs", "5000", "--repeats", "1", "--starts", "1"],
    ),
    plan("streams", &["streams"], &["streams", "--jobs", "2000", "--repeats", "1"]),
    plan("clip", &["clip", "--repeats", "5"], &["clip", "--repeats", "1"]),
    // A round of all of them takes a quarter of an hour.
    plan(
        "peers",
        &["peers", "--repeats", "1"],
        &["peers", "--repeats", "1", "--jobs", "500", "--only", "graphile-worker"],
    ),
    plan(
        "git",
        &["git"],
        &["git", "--mib", "4", "--crowd-mib", "1", "--entries", "10", "--backlog", "50", "--repeats", "1"],
    ),
    plan("directive", &["directive"], &["directive", "--rows", "2000"]),
    plan("temporal", &["temporal"], &["temporal", "--pages", "20"]),
];

/// Writes the page of the stored run anew, after its notes or its looks have changed.
pub(crate) fn write_page(project: &Path) -> Result<()> {
    let stored = project.join("bench/results/last.json");
    let results =
        Results::read(&stored)?.with_context(|| format!("no run is stored in {}", stored.display()))?;
    page::write(&results, None, project)
}

/// Runs the parts, prints the targets and what has changed; stores everything if asked to.
pub(crate) fn run(options: &Options) -> Result<()> {
    let stored = options.project.join("bench/results/last.json");
    let before = Results::read(&stored)?;
    let mut results = Results { facts: Facts::of_this_machine(), parts: Vec::new() };
    for plan in PLANS {
        if options.only.is_empty() || options.only.iter().any(|name| name == plan.name) {
            results.parts.push(part(plan, options.quick)?);
        }
    }
    results.facts.load_after = crate::results::load();
    println!("{}", page::targets(&results));
    match &before {
        Some(before) => println!("{}", page::changes(&results.changes_since(before), before)),
        None => println!("No run is stored to compare with."),
    }
    if options.store {
        results.store(&stored)?;
        page::write(&results, before.as_ref(), &options.project)?;
        println!("stored in {} and docs/benchmarks.md", stored.display());
    }
    Ok(())
}

fn part(plan: &Plan, quick: bool) -> Result<Part> {
    println!("\n=== {}", plan.name);
    let notes = tempfile::NamedTempFile::new().context("a file for figures")?;
    #[expect(clippy::disallowed_methods, reason = "this very program, for one part")]
    let mut command = Command::new(std::env::current_exe()?);
    let server = std::env::var("STARGATE_TEST_POSTGRES_URL").unwrap_or_default();
    let arguments = if quick { plan.quick } else { plan.arguments }.iter();
    command.args(arguments.map(|word| if *word == POSTGRES { server.as_str() } else { word }));
    command.env(NOTES, notes.path());
    let begin = Instant::now();
    let status = command.status().context("cannot start a part")?;
    let seconds = begin.elapsed().as_secs_f64();
    let failure = (!status.success()).then(|| format!("ended with {status}"));
    Ok(Part { name: plan.name.to_owned(), seconds, failure, figures: figures(notes.path())? })
}

fn figures(notes: &Path) -> Result<Vec<Figure>> {
    let text = std::fs::read_to_string(notes).context("the figures of a part")?;
    text.lines().map(|line| serde_json::from_str(line).context("a figure")).collect()
}

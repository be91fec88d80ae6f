//! Everything, one after the other on one machine, and what became of it since the last stored run.
//!
//! Each part is a process of its own, as if it had been started by hand: what one leaves in memory is not measured by the next.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result};
use clap::Args;

use crate::compare::Since;
use crate::facts::{self, Facts};
use crate::page;
use crate::report::{NOTES, Noted, noted};
use crate::results::{Part, Results, shared_names};
use crate::throughput;

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

/// Where the last run is kept, in the folder of the project.
const STORED: &str = "bench/results/last.json";
/// Names the server that the run was given.
const SERVER: &str = "STARGATE_TEST_POSTGRES_URL";
/// Stands for that server in the arguments of a part.
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
    plan("leader", &["leader", "--rounds", "50"], &["leader", "--rounds", "2"]),
    plan("pages-sqlite", &["pages"], &["pages", "--jobs", "5000", "--repeats", "1", "--starts", "1"]),
    plan(
        "pages-postgres",
        &["pages", "--store", POSTGRES],
        &["pages", "--store", POSTGRES, "--jobs", "5000", "--repeats", "1", "--starts", "1"],
    ),
    plan("streams", &["streams"], &["streams", "--jobs", "2000", "--repeats", "1"]),
    plan("clip", &["clip", "--repeats", "5"], &["clip", "--repeats", "1"]),
    // The first round takes six to seven minutes. Half of the rivals are too slow for the bound and not asked again, so that the
    // others take two.
    plan(
        "peers",
        &["peers", "--repeats", "3"],
        &["peers", "--repeats", "1", "--jobs", "500", "--only", "graphile-worker"],
    ),
    // Pushing 1,000 entries one by one takes half a minute, with all three of a round: three rounds are enough.
    plan(
        "git",
        &["git", "--entries", "1000", "--drain-repeats", "3"],
        &["git", "--mib", "4", "--crowd-mib", "1", "--entries", "10", "--backlog", "50", "--repeats", "1"],
    ),
    // For the memory of the node: nothing that it passes on may be held in it. Each server gets a round for the caches and one
    // that counts.
    plan(
        "git-large",
        &["git", "--only", "gateway", "--mib", "1024", "--repeats", "1"],
        &["git", "--only", "gateway", "--mib", "8", "--repeats", "1"],
    ),
    plan("directive", &["directive"], &["directive", "--rows", "2000"]),
    plan("temporal", &["temporal"], &["temporal", "--pages", "20"]),
];

/// Writes the page of the stored run anew, after its notes or its looks have changed.
pub(crate) fn write_page(project: &Path) -> Result<()> {
    let stored = project.join(STORED);
    let results =
        Results::read(&stored)?.with_context(|| format!("no run is stored in {}", stored.display()))?;
    page::write(&results, project)
}

/// Runs the parts, prints the targets and what has changed; stores everything if asked to. Fails at the end if a part
/// did: what the others found is told first.
pub(crate) async fn run(options: &Options) -> Result<()> {
    let stored = options.project.join(STORED);
    let before = Results::read(&stored)?;
    let server = std::env::var(SERVER).ok();
    let facts = Facts::of_this_machine(server.as_deref()).await;
    let mut results = Results { facts, parts: Vec::new(), since: None };
    for plan in PLANS.iter().filter(|plan| options.wants(plan.name)) {
        settle(server.as_deref()).await?;
        results.parts.push(part(plan, options.quick, server.as_deref().unwrap_or_default())?);
    }
    results.facts.load_after = facts::load();
    results.facts.pace_after = Some(facts::pace());
    let comparable = before.and_then(|before| options.comparable(before));
    results.since = comparable.map(|before| Since::between(&before, &results));
    println!("{}\n{}", page::targets(&results), page::changes(&results));
    if options.store {
        results.store(&stored)?;
        page::write(&results, &options.project)?;
        println!("stored in {} and docs/benchmarks.md", stored.display());
    }
    results.ensure_complete()
}

impl Options {
    fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == part)
    }

    /// What this run can be compared with: parts that it was not asked for are not missing, and a quick one has other sizes.
    fn comparable(&self, mut before: Results) -> Option<Results> {
        before.parts.retain(|part| self.wants(&part.name));
        (!self.quick).then_some(before)
    }
}

/// Clears away what the part before has left for others to do while the next one is measured: tables that the server would vacuum,
/// and what is not yet on the disk.
async fn settle(server: Option<&str>) -> Result<()> {
    if let Some(server) = server {
        throughput::remove_database(server).await?;
    }
    rustix::fs::sync();
    Ok(())
}

fn part(plan: &Plan, quick: bool, server: &str) -> Result<Part> {
    println!("\n=== {}", plan.name);
    let notes = tempfile::NamedTempFile::new().context("a file for figures")?;
    #[expect(clippy::disallowed_methods, reason = "this very program, for one part")]
    let mut command = Command::new(std::env::current_exe()?);
    let arguments = if quick { plan.quick } else { plan.arguments }.iter();
    command.args(arguments.map(|word| if *word == POSTGRES { server } else { word }));
    command.env(NOTES, notes.path());
    let begin = Instant::now();
    let status = command.status().context("cannot start a part")?;
    let seconds = begin.elapsed().as_secs_f64();
    let failure = (!status.success()).then(|| format!("ended with {status}"));
    Ok(told(plan.name, seconds, failure, noted(notes.path())))
}

/// Of what a part noted. Notes that cannot be read are a failure of that part, and of no other.
fn told(name: &str, seconds: f64, failure: Option<String>, noted: Result<Vec<Noted>>) -> Part {
    let unreadable = noted.as_ref().err().map(|error| format!("{error:#}"));
    let (mut figures, mut remarks) = (Vec::new(), Vec::new());
    for noted in noted.unwrap_or_default() {
        match noted {
            Noted::Figure(figure) => figures.push(figure),
            Noted::Remark { remark } => remarks.push(remark),
        }
    }
    for name in shared_names(&figures) {
        remarks.push(format!("several figures are called \"{name}\"; only the last is compared"));
    }
    Part { name: name.to_owned(), seconds, failure: failure.or(unreadable), remarks, figures }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::Parser as _;
    use clap::error::ErrorKind;

    use super::*;
    use crate::report::Goal;
    use crate::results::tests::results;

    fn options(only: &[&str], quick: bool) -> Options {
        let only = only.iter().map(|&name| name.to_owned()).collect();
        Options { store: false, only, project: ".".into(), quick }
    }

    #[test]
    fn every_part_has_a_name_of_its_own_and_arguments_that_are_understood() {
        let names: BTreeSet<&str> = PLANS.iter().map(|plan| plan.name).collect();
        assert_eq!(names.len(), PLANS.len());
        for arguments in PLANS.iter().flat_map(|plan| [plan.arguments, plan.quick]) {
            let parsed = crate::Arguments::try_parse_from([&["stargate-bench"], arguments].concat());
            // The server is named by the environment, and not in every test.
            let problem = parsed.err().filter(|error| error.kind() != ErrorKind::MissingRequiredArgument);
            assert!(problem.is_none(), "{problem:?}");
        }
    }

    #[test]
    fn a_part_that_was_not_asked_for_is_not_missing() {
        let before = results(&[("drain", 1.0, "jobs/s", Goal::None)]);
        let names = |results: Option<Results>| results.map(|results| results.parts.len());
        assert_eq!(names(options(&[], false).comparable(before.clone())), Some(1));
        assert_eq!(names(options(&["postgres"], false).comparable(before.clone())), Some(1));
        assert_eq!(names(options(&["git"], false).comparable(before.clone())), Some(0));
        assert_eq!(names(options(&[], true).comparable(before)), None);
    }

    #[test]
    fn figures_and_remarks_of_a_part_are_told_apart() {
        let figure = results(&[("drain", 1.0, "jobs/s", Goal::None)]).parts[0].figures[0].clone();
        let remark = Noted::Remark { remark: "peer x: not run: no npm".into() };
        let part = told("peers", 1.0, None, Ok(vec![Noted::Figure(figure.clone()), remark]));
        assert_eq!((part.figures.as_slice(), part.failure), ([figure.clone()].as_slice(), None));
        assert_eq!(part.remarks, ["peer x: not run: no npm"]);
        let twice = vec![Noted::Figure(figure.clone()), Noted::Figure(figure)];
        let part = told("peers", 1.0, None, Ok(twice));
        assert_eq!(
            part.remarks,
            ["several figures are called \"Postgres: drain\"; only the last is compared"]
        );
    }

    #[test]
    fn notes_that_cannot_be_read_are_a_failure_of_their_part() {
        let part = told("peers", 1.0, None, Err(anyhow::anyhow!("no note")));
        assert_eq!(part.failure.as_deref(), Some("no note"));
        let part = told("peers", 1.0, Some("killed".into()), Err(anyhow::anyhow!("no note")));
        assert_eq!(part.failure.as_deref(), Some("killed"));
    }
}

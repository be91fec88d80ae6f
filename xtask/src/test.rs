//! `cargo xtask test`: everything CI checks, with a report at the end.
//!
//! Every step runs even if an earlier one failed, so that one run tells all there is to mend; only the tests wait
//! for a build that works. What was not run is listed as not run, and a filtered run says that it was partial.

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::process;
use crate::services::Session;
use crate::tidy;

/// Runs everything, or only the tests whose names contain a filter.
pub(crate) fn run(filter: &[&str]) -> Result<ExitCode> {
    if let Some(flag) = filter.iter().find(|word| word.starts_with('-')) {
        anyhow::bail!("{flag} is not a filter; usage: cargo xtask test [FILTER…]");
    }
    let started = Instant::now();
    let mut report = Report::default();
    let runner = Runner::find();
    println!("test runner: {}", runner.name());

    if filter.is_empty() {
        report.step("tidy", tidy::passes);
        report.step("format", || cargo(&["fmt", "--all", "--check"]));
        report.step("clippy", || {
            cargo(&["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"])
        });
        report.step("without features", || {
            cargo(&["clippy", "--package", "stargate", "--no-default-features", "--", "--deny", "warnings"])
        });
    } else {
        for name in ["tidy", "format", "clippy", "without features"] {
            report.leave_out(name, "filtered");
        }
    }
    let built = report.step("build", || process::succeeds(&mut runner.build()));
    run_suites(&mut report, runner, filter, built);
    println!("{}", report.text(filter, started.elapsed()));
    Ok(if report.all_well() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run_suites(report: &mut Report, runner: Runner, filter: &[&str], built: bool) {
    if !built {
        report.leave_out("suites", "the build failed");
        report.leave_out("doc tests", "the build failed");
        return;
    }
    let mut session = None;
    let serving = report.step("services start", || {
        session = Some(Session::start()?);
        Ok(true)
    });
    if let Some(session) = session.filter(|_| serving) {
        report.step("suites", || {
            runner.refuse_empty(filter)?;
            process::succeeds(runner.suites(filter).envs(session.variables()))
        });
        if filter.is_empty() {
            report.step("doc tests", || process::succeeds(doc_tests().envs(session.variables())));
        } else {
            report.leave_out("doc tests", "filtered");
        }
        report.step("services stop", || session.stop().map(|()| true));
    } else {
        // Suites without their servers would fail one by one; the cause is told once.
        report.leave_out("suites", "no services");
        report.leave_out("doc tests", "no services");
    }
}

fn cargo(args: &[&str]) -> Result<bool> {
    process::succeeds(process::cargo().args(args))
}

fn doc_tests() -> Command {
    let mut command = process::cargo();
    command.args(["test", "--workspace", "--doc", "--quiet"]);
    command
}

/// What runs the suites: nextest where it is installed, else what cargo brings.
#[derive(Clone, Copy)]
enum Runner {
    Nextest,
    CargoTest,
}

impl Runner {
    fn find() -> Self {
        let installed = process::output(process::cargo().args(["nextest", "--version"])).is_ok();
        if installed { Self::Nextest } else { Self::CargoTest }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Nextest => "cargo nextest",
            Self::CargoTest => "cargo test ('cargo install cargo-nextest --locked' gives a faster one)",
        }
    }

    fn build(self) -> Command {
        let mut command = self.command();
        command.arg("--no-run");
        command
    }

    fn suites(self, filter: &[&str]) -> Command {
        let mut command = self.command();
        match self {
            Self::Nextest => command.arg("--no-tests=fail").args(filter),
            Self::CargoTest => command.arg("--no-fail-fast").arg("--").args(filter),
        };
        command
    }

    /// A filter that matches nothing is an error and not a success; nextest sees to that itself.
    fn refuse_empty(self, filter: &[&str]) -> Result<()> {
        if matches!(self, Self::Nextest) || filter.is_empty() {
            return Ok(());
        }
        let list = process::output(self.command().arg("--quiet").args(["--", "--list"]).args(filter))?;
        if !list.lines().any(|line| line.ends_with(": test")) {
            anyhow::bail!("no test matches {}", filter.join(", "));
        }
        Ok(())
    }

    fn command(self) -> Command {
        let mut command = process::cargo();
        match self {
            Self::Nextest => command.args(["nextest", "run", "--workspace"]),
            Self::CargoTest => command.args(["test", "--workspace", "--lib", "--bins", "--tests"]),
        };
        command
    }
}

/// How each step went.
#[derive(Default)]
struct Report {
    steps: Vec<Step>,
}

struct Step {
    name: &'static str,
    outcome: Outcome,
    took: Duration,
}

#[derive(PartialEq)]
enum Outcome {
    Passed,
    Failed,
    NotRun(&'static str),
}

impl Report {
    /// Runs a step and notes how it went; true if it passed.
    fn step(&mut self, name: &'static str, work: impl FnOnce() -> Result<bool>) -> bool {
        println!("\n── {name}");
        let started = Instant::now();
        let passed = work().unwrap_or_else(|error| {
            eprintln!("error: {error:#}");
            false
        });
        let took = started.elapsed();
        println!("── {name}: {}, {}", if passed { "passed" } else { "FAILED" }, seconds(took));
        let outcome = if passed { Outcome::Passed } else { Outcome::Failed };
        self.steps.push(Step { name, outcome, took });
        passed
    }

    fn leave_out(&mut self, name: &'static str, why: &'static str) {
        self.steps.push(Step { name, outcome: Outcome::NotRun(why), took: Duration::ZERO });
    }

    /// A step that was left out is fine only where a filter asked for it.
    fn all_well(&self) -> bool {
        self.steps.iter().all(|step| matches!(step.outcome, Outcome::Passed | Outcome::NotRun("filtered")))
    }

    fn text(&self, filter: &[&str], took: Duration) -> String {
        let mut text = String::from("\n");
        for step in &self.steps {
            let outcome = match step.outcome {
                Outcome::Passed => "passed".to_owned(),
                Outcome::Failed => "FAILED".to_owned(),
                Outcome::NotRun(why) => format!("NOT RUN: {why}"),
            };
            text += &format!("{:<16}{:>9}  {outcome}\n", step.name, seconds(step.took));
        }
        let verdict = match (self.all_well(), filter.is_empty()) {
            (true, true) => "everything passed".to_owned(),
            (true, false) => {
                format!("PARTIAL: only tests matching {} were run; they passed", filter.join(", "))
            }
            (false, _) => "FAILED".to_owned(),
        };
        text + &format!("{verdict}, {}", seconds(took))
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failed_step_fails_the_run_and_the_others_are_still_told() {
        let mut report = Report::default();
        assert!(report.step("first", || Ok(true)));
        assert!(!report.step("second", || Ok(false)));
        assert!(!report.step("third", || anyhow::bail!("broken")));
        assert!(!report.all_well());
        let text = report.text(&[], Duration::from_secs(2));
        assert!(text.contains("passed") && text.ends_with("FAILED, 2.0 s"), "{text}");
    }

    #[test]
    fn a_suite_that_could_not_run_never_looks_green() {
        let mut report = Report::default();
        report.step("build", || Ok(true));
        report.leave_out("suites", "no services");
        assert!(!report.all_well());
        assert!(report.text(&[], Duration::ZERO).contains("NOT RUN: no services"));
    }

    #[test]
    fn a_filtered_run_says_that_it_was_partial() {
        let mut report = Report::default();
        report.leave_out("clippy", "filtered");
        report.step("suites", || Ok(true));
        assert!(report.all_well());
        let text = report.text(&["lease"], Duration::ZERO);
        assert!(text.contains("PARTIAL") && !text.contains("everything"), "{text}");
    }
}

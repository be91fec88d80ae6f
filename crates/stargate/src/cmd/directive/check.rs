//! `stargate directive check`: everything that is wrong with directives, before a run finds it.

use std::path::PathBuf;

use serde::Serialize;
use stargate_directive::file::{self, Directive, Place, Problem};

use crate::config::directives::Directives;
use crate::failure::{Exit, Failure, Result};
use crate::output::Output;
use crate::run::App;

/// What the check found.
#[derive(Debug, Default)]
struct Report {
    /// Files looked at.
    files: usize,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
}

/// The stable fields of `--json`.
#[derive(Serialize)]
struct ReportView {
    files: usize,
    problems: Vec<ProblemView>,
    warnings: Vec<ProblemView>,
}

#[derive(Serialize)]
struct ProblemView {
    file: String,
    line: usize,
    column: usize,
    message: String,
}

/// Checks the files, or the directory of the configuration.
pub(super) fn run(paths: &[PathBuf], app: &App) -> Result<()> {
    let settings = &app.settings.directives;
    let files = files(paths, settings)?;
    let environment = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    let report = report(&files, settings, environment);
    print(&report, app.out);
    if report.problems.is_empty() {
        return Ok(());
    }
    let message = format!("{} in {}", count(report.problems.len(), "problem"), count(files.len(), "file"));
    let help = "correct what is named above; 'stargate directive schema' prints what is possible";
    Err(Failure::failed("DIRECTIVE_INVALID", message).help(help))
}

/// The files that are meant.
fn files(paths: &[PathBuf], settings: &Directives) -> Result<Vec<PathBuf>> {
    let default = [settings.dir.clone()];
    let named = if paths.is_empty() { &default } else { paths };
    let mut files = Vec::new();
    for path in named {
        // A file that is not there is a problem of the report; a directory that is not there has nothing to report.
        let is_file = path.is_file() || (path.extension().is_some() && !path.is_dir());
        if is_file {
            files.push(path.clone());
            continue;
        }
        let found = file::files(path).map_err(|error| {
            let what = format!("cannot read the directory {}", path.display());
            match error.kind() {
                std::io::ErrorKind::NotFound => {
                    Failure::new(Exit::NotFound, "NOT_FOUND", format!("{what}: {error}"))
                        .help("name files or a directory, or set directives.dir in stargate.toml")
                }
                _ => Failure::io(what, &error),
            }
        })?;
        files.extend(found);
    }
    files.sort();
    files.dedup();
    Ok(files)
}

fn report(files: &[PathBuf], settings: &Directives, environment: impl Fn(&str) -> Option<String>) -> Report {
    let mut report = Report { files: files.len(), ..Report::default() };
    let mut directives = Vec::new();
    for path in files {
        match file::read(path, &settings.queues) {
            Ok(directive) => directives.push(directive),
            Err(problems) => report.problems.extend(problems),
        }
    }
    for directive in &directives {
        report.warnings.extend(directive.unset(&environment));
        report.warnings.extend(undelivered(directive, settings));
    }
    let together = file::together(&directives);
    report.problems.extend(together.problems);
    report.warnings.extend(together.warnings);
    let order = |problem: &Problem| (problem.path.clone(), problem.line, problem.column);
    report.problems.sort_by_key(order);
    report.warnings.sort_by_key(order);
    report
}

/// Announcements that nobody fetches pile up.
fn undelivered(directive: &Directive, settings: &Directives) -> Option<Problem> {
    let topic = directive.sink.outbox.as_ref()?;
    if settings.outbox.iter().any(|plan| &plan.topic == topic) {
        return None;
    }
    let Place { line, column } = directive.places.table;
    let text = format!(
        "announcements of {topic:?} are kept and not delivered: [outbox.{topic:?}] is missing in stargate.toml"
    );
    Some(Problem { path: directive.path.clone(), line, column, text })
}

fn print(report: &Report, out: Output) {
    if out.json {
        let views = |problems: &[Problem]| problems.iter().map(view).collect();
        let (problems, warnings) = (views(&report.problems), views(&report.warnings));
        out.json(&ReportView { files: report.files, problems, warnings });
        return;
    }
    for problem in &report.problems {
        out.line(problem);
    }
    for warning in &report.warnings {
        use owo_colors::OwoColorize as _;
        out.note(format!("{} {warning}", "warning:".yellow()));
    }
    if report.problems.is_empty() {
        let warnings = match report.warnings.len() {
            0 => String::new(),
            n => format!(", {}", count(n, "warning")),
        };
        out.line(format!("{} checked, no problems{warnings}", count(report.files, "directive")));
    }
}

fn view(problem: &Problem) -> ProblemView {
    let Problem { path, line, column, text } = problem;
    ProblemView { file: path.display().to_string(), line: *line, column: *column, message: text.clone() }
}

fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

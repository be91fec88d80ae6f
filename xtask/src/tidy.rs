//! `cargo xtask tidy`: the rules of the project that no compiler checks, in seconds.
//!
//! Each check is a pure function from the project's files to a list of problems, so that its own tests can show
//! that it finds what it is there for.

mod code;
mod crates;
mod program;
mod rust;
mod source;
mod sql;
mod text;

use std::fmt;
use std::fs;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::process;

/// A file of the project, its path relative to the root.
pub(crate) struct File {
    path: String,
    text: String,
}

/// Something that is against the rules.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Problem {
    path: String,
    /// 0 when it concerns the file as a whole.
    line: usize,
    message: String,
}

impl Problem {
    fn at(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }

    fn of(path: &str, message: impl Into<String>) -> Self {
        Self::at(path, 0, message)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// Runs the subcommand.
pub(crate) fn run() -> Result<ExitCode> {
    Ok(if passes()? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Checks everything and prints what is wrong; true if nothing is.
pub(crate) fn passes() -> Result<bool> {
    let files = project_files()?;
    let metadata = process::output(process::cargo().args(["metadata", "--no-deps", "--format-version=1"]))?;
    let mut problems = crates::check(&metadata)?;
    problems.extend(program::check(&tree(&[])?, &tree(&["--no-default-features"])?));
    problems.extend(check_files(&files));
    problems.sort();
    for problem in &problems {
        println!("{problem}");
    }
    println!("tidy: {} files, {} problems", files.len(), problems.len());
    Ok(problems.is_empty())
}

/// The crates of the program.
fn tree(features: &[&str]) -> Result<String> {
    let mut cargo = process::cargo();
    cargo.args(["tree", "--package", "stargate", "--edges", "normal,build", "--prefix", "none", "--locked"]);
    process::output(cargo.args(features))
}

fn check_files(files: &[File]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in files {
        problems.extend(text::check(file));
        if file.path.ends_with(".rs") {
            problems.extend(source::check(file));
        }
        // The root of another workspace is where that one writes its versions and lints.
        if file.path.ends_with("/Cargo.toml") && !file.text.contains("\n[workspace]\n") {
            problems.extend(crates::check_manifest(file));
        }
    }
    problems.extend(sql::check(files));
    problems.extend(code::check(files));
    problems.extend(text::check_changelog(files));
    problems
}

/// Everything that git tracks or would track; files that are no text are left out.
fn project_files() -> Result<Vec<File>> {
    let list = process::output(process::command("git").args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]))?;
    let root = process::root();
    let mut files = Vec::new();
    for path in list.split('\0').filter(|path| !path.is_empty()) {
        let full = root.join(path);
        if !full.is_file() {
            continue; // removed, but still in the index
        }
        let bytes = fs::read(&full).with_context(|| format!("cannot read {path}"))?;
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(File { path: path.to_owned(), text });
        }
    }
    Ok(files)
}

#[cfg(test)]
fn file(path: &str, text: &str) -> File {
    File { path: path.to_owned(), text: text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_that_breaks_rules_is_told_each_of_them_once() {
        let files = [
            file("crates/a/src/mod.rs", "fn main() {}\n"),
            file("crates/a/Cargo.toml", "[package]\nname = \"a\"\n"),
            file("crates/store/sql/sqlite/job_x.sql", "select 1\n"),
        ];
        let problems: Vec<String> = check_files(&files).iter().map(ToString::to_string).collect();
        for (path, part) in [
            ("crates/a/src/mod.rs", "//!"),
            ("crates/a/src/mod.rs", "name.rs"),
            ("crates/a/Cargo.toml", "[lints]"),
            ("crates/store/sql/sqlite/job_x.sql", "counterpart"),
            ("CHANGELOG.md", "missing"),
        ] {
            let found = problems.iter().filter(|p| p.starts_with(path) && p.contains(part)).count();
            assert_eq!(found, 1, "{path} {part} in {problems:#?}");
        }
    }
}

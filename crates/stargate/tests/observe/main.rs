//! What others see of a running node: traces that a collector gets, metrics that a real Prometheus reads, the dashboard
//! and the alert rules that are shipped, and what `deploy` has.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod backup;
mod collector;
mod deploy;
mod guide;
mod prometheus;
mod promtool;
mod traces;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use stargate_testkit::process::Program;

/// For everything that has to happen sooner or later.
const PATIENCE: Duration = Duration::from_secs(60);

fn configured(toml: &str) -> Program {
    let program = Program::new(env!("CARGO_BIN_EXE_stargate"));
    std::fs::write(program.home().join("stargate.toml"), toml).unwrap();
    program
}

/// A file or folder of the project.
fn of_project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn text_of(path: &str) -> String {
    let path = of_project(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What `cargo xtask` tells about a program.
fn service(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!(
            "run `cargo xtask test`, or `cargo xtask services start` and export what it prints ({variable})"
        )
    })
}

#[expect(clippy::disallowed_methods, reason = "a test starts the programs that it tries things with")]
fn command(program: &str) -> Command {
    Command::new(program)
}

/// Runs a program that has to succeed.
fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?} ended with {}\n{}\n{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    output
}

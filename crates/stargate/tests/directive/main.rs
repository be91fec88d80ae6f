//! Directives with the real binary.

#![expect(clippy::print_stdout, reason = "the figures of the run")]
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod cancel;
mod check;
mod conflict;
mod engines;
mod hostile;
mod kill;
mod memory;
mod metrics;
mod quarantine;
mod retries;
mod schedule;
mod sources;
mod stage;
mod steps;
mod taps_killed;
mod temporal;

use std::process::Output;

use stargate_testkit::process::Program;

/// The binary with an empty home of its own.
fn stargate() -> Program {
    Program::new(env!("CARGO_BIN_EXE_stargate"))
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("an exit code")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

//! The real binary, from the outside: exit codes, JSON, refusals, signals, the demo.
#![expect(clippy::unwrap_used, reason = "a panic is the report of a test")]

mod bundle;
mod clip;
mod config;
mod demo;
mod doctor;
mod drill;
mod jobs;
mod leader;
mod operate;
mod reference;
mod remote;
mod serve;
mod store;
mod top;

use std::process::Output;

use stargate_testkit::process::Program;

/// The binary with an empty home of its own.
fn stargate() -> Program {
    Program::new(env!("CARGO_BIN_EXE_stargate"))
}

/// The binary with a configuration file in its home.
fn configured(toml: &str) -> Program {
    let program = stargate();
    std::fs::write(program.home().join("stargate.toml"), toml).expect("a configuration in the home");
    program
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("an exit code")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a command that has to print JSON.
fn json(program: &Program, arguments: &[&str]) -> serde_json::Value {
    let text = program.answer(arguments);
    serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{arguments:?} printed no JSON ({error}): {text}"))
}

/// Runs a command that has to fail: its exit code and its error as JSON.
fn refusal(program: &Program, arguments: &[&str]) -> (i32, serde_json::Value) {
    let output = program.run(&[arguments, &["--json"]].concat());
    let text = stderr(&output);
    let last = text.lines().last().unwrap_or_default();
    let error = serde_json::from_str::<serde_json::Value>(last);
    let error =
        error.unwrap_or_else(|problem| panic!("{arguments:?} printed no JSON error ({problem}): {text}"));
    assert!(output.stdout.is_empty(), "{arguments:?} failed and printed a result");
    (code(&output), error["error"].clone())
}

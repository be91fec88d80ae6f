//! The real binary in broken surroundings: full and read-only disks, stores it must not touch, workers that freeze, end
//! in mid-job or compete, and many processes on one file.

mod disk;
mod files;
mod together;
mod workers;

use std::process::Output;
use std::time::Duration;

use serde_json::Value;
use stargate_testkit::eventually;
use stargate_testkit::process::Program;

/// For everything that has to happen sooner or later.
const PATIENCE: Duration = Duration::from_secs(60);

/// The binary with a configuration file in a home of its own.
fn configured(toml: &str) -> Program {
    let program = Program::new(env!("CARGO_BIN_EXE_stargate"));
    std::fs::write(program.home().join("stargate.toml"), toml).expect("a configuration in the home");
    program
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a command that has to print JSON.
fn json(program: &Program, arguments: &[&str]) -> Value {
    let text = program.answer(&[arguments, &["--json"]].concat());
    serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{arguments:?} printed no JSON ({error}): {text}"))
}

/// Runs a command that has to fail: its exit code and its error as JSON.
fn refusal(program: &Program, arguments: &[&str]) -> (Option<i32>, Value) {
    let output = program.run(&[arguments, &["--json"]].concat());
    let text = stderr(&output);
    let last = text.lines().last().unwrap_or_default();
    let error = serde_json::from_str::<Value>(last);
    let error =
        error.unwrap_or_else(|problem| panic!("{arguments:?} printed no JSON error ({problem}): {text}"));
    assert!(output.stdout.is_empty(), "{arguments:?} failed and printed a result");
    (output.status.code(), error["error"].clone())
}

/// The code of a refused command, which has to end with exit code 5 and say all of `parts`.
fn refused_with(program: &Program, arguments: &[&str], parts: &[&str]) -> String {
    let (exit, error) = refusal(program, arguments);
    let message = error["message"].as_str().unwrap_or_default();
    assert_eq!(exit, Some(5), "{arguments:?}: {error}");
    for part in parts {
        assert!(message.contains(part), "{arguments:?}: no {part:?} in {message:?}");
    }
    error["code"].as_str().unwrap_or_default().to_owned()
}

/// Waits until a job is in a state.
async fn reaches(program: &Program, id: &str, state: &str) -> Value {
    eventually(PATIENCE, &format!("job {id} to be {state}"), || {
        let job = json(program, &["job", "show", id]);
        async move { if job["state"] == state { Ok(job) } else { Err(job.to_string()) } }
    })
    .await
}

/// The timeline of a job.
fn events(program: &Program, id: &str) -> Vec<Value> {
    json(program, &["job", "events", id]).as_array().cloned().unwrap_or_default()
}

/// The names of the timeline.
fn names(events: &[Value]) -> Vec<&str> {
    events.iter().filter_map(|event| event["event"].as_str()).collect()
}

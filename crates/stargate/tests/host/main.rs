//! The real binary and the machine it runs on: its supervisor and its load.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod pressure;
mod systemd;

use std::time::Duration;

use stargate_testkit::process::Program;

/// For everything that has to happen sooner or later.
const PATIENCE: Duration = Duration::from_secs(30);

fn configured(toml: &str) -> Program {
    let program = Program::new(env!("CARGO_BIN_EXE_stargate"));
    std::fs::write(program.home().join("stargate.toml"), toml).unwrap();
    program
}

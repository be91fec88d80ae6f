//! The git side on the real binary with a stock git client: repositories, tokens, pushes and what is recorded of them.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod access;
mod body;
mod client;
mod create;
mod disk;
mod handover;
mod hooks;
mod leader;
mod postgres;
mod record;
mod relay;
mod site;
mod ssh;
mod stop;
mod tls;
mod webhook;

use std::time::Duration;

use serde_json::Value;
use stargate_testkit::eventually;
use stargate_testkit::process::{Program, Running};

/// For everything that has to happen sooner or later.
const PATIENCE: Duration = Duration::from_secs(60);

/// The binary with a configuration.
fn program(toml: &str) -> Program {
    let program = Program::new(env!("CARGO_BIN_EXE_stargate"));
    std::fs::write(program.home().join("stargate.toml"), toml).unwrap();
    program
}

/// A node that leads.
async fn leader(program: &Program, name: &str) -> Running {
    let mut node = program.start_with(&["up"], &[("STARGATE_INSTANCE", name)]);
    node.ready().await;
    leads(program, &node).await;
    node
}

async fn leads(program: &Program, node: &Running) {
    let url = format!("http://{}", node.address());
    eventually(PATIENCE, "the node to lead", || {
        let (output, log) = (program.run(&["leader", "check", "--url", &url]), node.log());
        async move { if output.status.success() { Ok(()) } else { Err(format!("{output:?}; log:\n{log}")) } }
    })
    .await;
}

fn json(program: &Program, arguments: &[&str]) -> Value {
    serde_json::from_str(&program.answer(arguments)).unwrap()
}

fn stderr(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

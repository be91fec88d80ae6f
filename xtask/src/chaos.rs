//! `cargo xtask chaos` and `cargo xtask soak`: the whole product under faults, and for a long time.

use std::process::ExitCode;

use anyhow::{Result, ensure};

use crate::process;
use crate::services::Session;

/// Runs `stargate-chaos` with the program built beside it. `--release` builds both as users get them.
pub(crate) fn run(subject: &str, args: &[&str]) -> Result<ExitCode> {
    let release = args.contains(&"--release");
    let profile: &[&str] = if release { &["--release"] } else { &[] };
    let mut build = process::cargo();
    build.args(["build", "--package", "stargate", "--package", "stargate-chaos"]).args(profile);
    ensure!(process::succeeds(&mut build)?, "the programs could not be built");
    let session = Session::start()?;
    let folder = process::root().join("target").join(if release { "release" } else { "debug" });
    let mut chaos = process::command(folder.join("stargate-chaos"));
    chaos.arg(subject).args(args.iter().filter(|arg| **arg != "--release"));
    let code = process::exit_code(chaos.envs(session.variables()));
    session.stop()?;
    code
}

//! `cargo xtask chaos` and `cargo xtask soak`: the whole product under faults, and for a long time.

use std::process::ExitCode;

use anyhow::Result;

use crate::process;
use crate::services::Session;

/// Runs `stargate-chaos` with the program built beside it. `--release` builds both as users get them.
pub(crate) fn run(subject: &str, args: &[&str]) -> Result<ExitCode> {
    let release = args.contains(&"--release");
    let folder = process::build_programs(release)?;
    let session = Session::start()?;
    let mut chaos = process::command(folder.join("stargate-chaos"));
    chaos.arg(subject).args(args.iter().filter(|arg| **arg != "--release"));
    let code = process::exit_code(chaos.envs(session.variables()));
    session.stop()?;
    code
}

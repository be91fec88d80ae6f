//! `cargo xtask bench`: the benchmarks against private services, in a release build.

use std::process::ExitCode;

use anyhow::Result;

use crate::process;
use crate::services::Session;

/// Runs `stargate-bench` with the arguments, beside the program that it measures.
pub(crate) fn run(args: &[&str]) -> Result<ExitCode> {
    let folder = process::build_programs(true)?;
    let session = Session::start()?;
    let mut bench = process::command(folder.join("stargate-bench"));
    let code = process::exit_code(bench.args(args).envs(session.variables()));
    session.stop()?;
    code
}

//! `cargo xtask bench`: the benchmarks against private services, in a release build.

use std::process::ExitCode;

use anyhow::Result;

use crate::process;
use crate::services::Session;

/// Runs `stargate-bench` with the arguments.
pub(crate) fn run(args: &[&str]) -> Result<ExitCode> {
    // These measure the program itself, which the benchmark does not bring along.
    const OF_THE_PROGRAM: [&str; 7] = ["all", "git", "directive", "temporal", "leader", "pages", "streams"];
    if args.first().is_some_and(|part| OF_THE_PROGRAM.contains(part)) {
        let built =
            process::succeeds(process::cargo().args(["build", "--release", "--package", "stargate"]))?;
        anyhow::ensure!(built, "the program could not be built");
    }
    let session = Session::start()?;
    let mut bench = process::cargo();
    bench.args(["run", "--release", "--package", "stargate-bench", "--"]).args(args);
    let code = process::exit_code(bench.envs(session.variables()));
    session.stop()?;
    code
}

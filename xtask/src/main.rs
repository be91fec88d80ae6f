//! The project's own commands: `cargo xtask test | tidy | services | bench | chaos | soak`.
//!
//! The same commands run on a developer's machine and in CI. Each subcommand is one file; the only place that
//! starts other programs is `process.rs`.

#![expect(clippy::print_stdout, reason = "a command-line program talks to people on stdout")]
#![expect(
    clippy::print_stderr,
    reason = "progress goes to stderr, so that stdout can be evaluated by a shell"
)]

mod bench;
mod chaos;
mod process;
mod services;
mod test;
mod tidy;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test [FILTER…]        everything CI checks; with a filter only the tests whose names contain it
  tidy                  the rules of the project that no compiler checks (seconds)
  services start        starts private servers (Postgres, PgBouncer, S3, Temporal), prints the variables tests need
  services stop         stops them and removes their data
  services run -- CMD…  starts them, runs CMD with the variables set, stops them
  bench [ARGS…]         the benchmarks, with services; ARGS go to stargate-bench
  chaos [ARGS…]         the whole product under seeded faults; --help tells more
  chaos rivals [ARGS…]  other queues beside ours: workers killed, the database restarted
  soak [ARGS…]          looks for what grows: memory, files, connections, disk, dead rows";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match args.as_slice() {
        ["test", filter @ ..] => test::run(filter),
        ["tidy"] => tidy::run(),
        ["services", rest @ ..] => services::run(rest),
        ["bench", rest @ ..] => bench::run(rest),
        ["chaos", "rivals", rest @ ..] => chaos::run("rivals", rest),
        ["chaos", rest @ ..] => chaos::run("run", rest),
        ["soak", rest @ ..] => chaos::run("soak", rest),
        ["help" | "-h" | "--help"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

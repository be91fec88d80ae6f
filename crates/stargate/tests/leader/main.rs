//! Leadership on the real binary, with a real Redis, on both stores: who leads when something dies, stops, is cut off or
//! forgets. At no moment two, and no write of yesterday's leader.
//!
//! The short form is part of CI. The long one (`STARGATE_LEADER_LONG=1 cargo test -p stargate --test leader --
//! --nocapture --test-threads 1`) has the counts and times of the test plan and takes half an hour; it prints figures.

#![expect(clippy::print_stdout, reason = "the figures of the run")]
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod failover;
mod lock;
mod observer;
mod partition;
mod stage;
mod stop;
mod verdict;

use std::time::Duration;

/// For everything that has to happen sooner or later.
const PATIENCE: Duration = Duration::from_secs(60);

/// Asks for the long form.
const LONG_VARIABLE: &str = "STARGATE_LEADER_LONG";

fn is_long() -> bool {
    std::env::var_os(LONG_VARIABLE).is_some_and(|value| value == "1")
}

/// How often, in the short and in the long form.
fn times(short: usize, long: usize) -> usize {
    if is_long() { long } else { short }
}

/// Prints how long something took: the middle and the worst ones.
fn print_times(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let median = times[times.len() / 2];
    let worst = &times[times.len().saturating_sub(3)..];
    println!("{what}: {} times, median {median:.3?}, worst {worst:.3?}", times.len());
}

//! The worker with a real git and real bare remotes, with every git that is there: the one on `PATH`, and those that
//! `STARGATE_TEST_GITS` names (programs separated by colons).

#![expect(clippy::unwrap_used, reason = "a test may end that way, and the functions it calls with it")]
#![expect(clippy::print_stdout, reason = "figures are printed, not judged")]

mod answers;
mod calls;
mod coalesce;
mod doubt;
mod fixture;
mod hostile;
mod kill;
mod outage;
mod plan;
mod process;
mod reconcile;
mod refs;

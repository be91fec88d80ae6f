//! The whole product under seeded faults, and a checker that believes only what it finds outside.
//!
//! A run sets up an installation of the real binary (`site`), lets users enqueue, push and change data (`load`), breaks
//! things in an order that the seed decides (`plan`, `inject`), watches who leads and where the cursor is (`watch`), then
//! heals everything, waits until all is done, and judges each invariant (`check`). What was acknowledged is in a file
//! beside the product (`ledger`); the store is read by plain SQL (`evidence`), remotes by git, artifacts by their bytes.
//! Beside it: the soak, which looks for what grows ([`soak`]), and other queues under two of the faults ([`rivals`]).
#![expect(clippy::print_stdout, reason = "a command-line program talks to people on stdout")]

mod check;
mod clock;
mod crew;
mod evidence;
mod inject;
mod ledger;
mod load;
mod network;
mod plan;
mod report;
mod rivals;
mod run;
mod s3;
mod secrets;
mod services;
mod site;
mod soak;
mod watch;

pub use network::Namespaces;
pub use report::Report;
pub use rivals::rivals;
pub use run::{Options, commit, run};
pub use site::Kind;
pub use soak::{Soak, soak};

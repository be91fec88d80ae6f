//! The hand-driven clock and the instant at which every test begins.

use jiff::Timestamp;
pub use stargate_base::clock::ManualClock;

/// Where the clock of every fixture stands at first: noon of an ordinary day, far from the host's own time, so
/// that a statement that asks the database's clock by mistake is found out.
pub fn start_of_time() -> Timestamp {
    "2031-03-05T12:00:00Z".parse().expect("a constant that parses")
}

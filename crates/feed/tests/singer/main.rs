//! Singer taps: real ones from PyPI, and small scripts that behave as taps should not.
#![expect(clippy::unwrap_used, reason = "a panic is the report of a test")]

mod bench;
mod ending;
mod hostile;
mod secrets;
mod taps;

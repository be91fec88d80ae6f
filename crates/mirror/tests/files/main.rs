//! The files of the mirror: what is in them after everything that can happen to those who write them.

#![expect(clippy::unwrap_used, reason = "a test may end that way, and the functions it calls with it")]

mod append;
mod dead_letter;
mod faults;
mod fixture;
mod order;
mod process;
mod property;
mod reader;
mod safety;
mod status;
mod torn;
mod writers;

//! The engine on real stores: everything a worker process promises, short of killing it.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod attempts;
mod engine;
mod faulty;
mod stores;

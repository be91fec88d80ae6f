//! The commands, one file each.

pub(crate) mod bench;
pub(crate) mod config;
pub(crate) mod demo;
pub(crate) mod directive;
pub(crate) mod docs;
pub(crate) mod doctor;
pub(crate) mod drill;
pub(crate) mod enqueue;
pub(crate) mod explain;
pub(crate) mod hook;
pub(crate) mod job;
pub(crate) mod leader;
pub(crate) mod limit;
pub(crate) mod migrate;
pub(crate) mod mirror;
pub(crate) mod purge;
pub(crate) mod queue;
pub(crate) mod repo;
pub(crate) mod schedule;
pub(crate) mod scratch;
pub(crate) mod serve;
pub(crate) mod ssh_dispatch;
pub(crate) mod store;
pub(crate) mod token;
pub(crate) mod webhook;
pub(crate) mod workers;

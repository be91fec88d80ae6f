//! The mirror on the real binary, with real bare repositories as remotes: the test plan of the mirror worker, the commands,
//! and who mirrors when there are two nodes.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod away;
mod commands;
mod hostile;
mod leader;
mod letters;
mod lock;
mod plan;
mod remote;
mod sshd;
mod stage;
mod unread;

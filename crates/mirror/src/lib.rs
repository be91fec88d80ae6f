//! The mirror: what was pushed here is pushed on to a remote, in order, and never taken back (INV-1, INV-4).
//!
//! All that it remembers are files in `<bare repository>/.stargate/`:
//!
//! | file | is |
//! | --- | --- |
//! | `mirror-journal.ndjson` | the segment of the [`journal`] that is written; full ones are `mirror-journal.0000000001.ndjson` … |
//! | `mirror-journal.id` | which journal this is, so that a checkpoint of another one is not taken for ours |
//! | `mirror-worker.offset` | the [`checkpoint`]: how far the journal is accounted for |
//! | `mirror-status.ndjson` | the [`status`] records: what became of each entry |
//! | `dead-letter/` | the [dead letters](dead_letter), a file each |
//! | `mirror-dead-letter.ndjson` | the same as lines, for reading |
//! | `mirror-worker.state` | what the worker last said about itself, for the [`report`] |
//! | `worker.lock` | the [`lock`] of whoever pushes; `worker.lock.turn` is held while it is taken over |
//!
//! An entry's way: a hook appends it to the journal; the worker reads it, pushes, appends a status record, syncs the
//! journal and moves the checkpoint. Each of these is durable before the next begins, so a process that dies in
//! between repeats at most one step, and each step may be repeated.
//!
//! What happens when …
//!
//! | | |
//! | --- | --- |
//! | a writer dies in mid-line | the next writer ends the torn line first; nothing is glued to it |
//! | the disk is full | what was written of the line is taken back; the append fails with [`Error::Full`] |
//! | a sync fails | [`Error::FailStop`]: the process must end, because nobody knows what is on disk |
//! | the worker dies after the status record | the record says that the entry is done, when the entry is read again |
//! | the journal is not the one that the checkpoint was made for | everything still there is read again, and what has a status record is passed over |
//! | the worker is stopped (SIGSTOP) | the leader of a later term takes its lock over; when it goes on, it sees that and ends |
//! | nobody reads the journal | where there is no mirror, old segments are removed; a mirror that is added compares all refs first |
//! | a file is a link, or anybody may write it | [`Error::Unsafe`] |

pub mod breaker;
pub mod checkpoint;
pub mod classify;
pub mod compare;
pub mod config;
pub mod dead_letter;
pub mod entry;
pub mod error;
mod files;
pub mod journal;
mod lines;
pub mod lock;
pub mod metrics;
pub mod permit;
pub mod plan;
pub mod reconcile;
pub mod report;
pub mod routes;
pub mod status;
pub mod sync;
pub mod verify;
pub mod wait;
pub mod watch;
pub mod worker;

pub use checkpoint::Checkpoint;
pub use config::Config;
pub use dead_letter::DeadLetters;
pub use entry::{Entry, Malformed, NewEntry};
pub use error::{Error, Result};
pub use journal::{Appended, Journal, Next, Position, Reader, Resume};
pub use lock::WorkerLock;
pub use permit::Permit;
pub use report::Report;
pub use routes::{Route, Routes};
pub use status::Statuses;
pub use watch::Watch;
pub use worker::{Drained, Handle, Round, Step, Steps, Worker};

//! Git over HTTP and SSH, backed by the real git: repositories, hooks, and the gate that decides who may do what.
//!
//! ```text
//!  git client ──▶ request ──▶ gate ──▶ slot ──▶ git upload-pack | receive-pack ──▶ answer, as it comes
//!                 (names)   (rights,  (how many          │
//!                            leader)   at once)          ├─ pre-receive: rules, leader, point of no return
//!                                                        └─ post-receive: journal, then the store,
//!                                                                          by way of the node (`handover.rs`)
//! ```
//!
//! Promises:
//!
//! - **Bounded** (INV-7): bodies stream both ways through a few buffers; a slow side slows the other down. Bytes,
//!   silence, time, processes and waiting requests have limits ([`Settings`]).
//! - **Nothing half done**: a push whose client vanishes is killed, and no ref has moved, unless its hooks have begun;
//!   then it is let finish, so that `post-receive` records it (`claim.rs`).
//! - **Nothing outside the root**: [`RepoName`] is the only text of a client that becomes part of a path.
//! - **Secrets** (INV-8): credentials go to the [`Gate`] and nowhere else.
//!
//! What happens when …
//!
//! | | |
//! | --- | --- |
//! | the client goes while it sends a pack | receive-pack is ended with all that it started; no ref has moved |
//! | the client goes while hooks run | the push ends as if it were there; what git says is dropped |
//! | this process is killed | git reads the end of its input: in mid-pack it fails, later it ends by itself |
//! | git fails before it has said anything | 500; what it complained about is in the log |
//! | git fails in mid-answer | the answer ends; git's own framing tells the client that it is not whole |
//! | `post-receive` cannot write | the push is accepted, the pusher is warned, reconcile finds it |

mod claim;
pub mod error;
mod exchange;
pub mod gate;
pub mod handover;
pub mod hook;
pub mod http;
mod intake;
pub mod name;
mod pkt;
mod refusal;
pub mod repositories;
mod request;
pub mod settings;
mod slots;
pub mod ssh;

pub use error::{Error, Result};
pub use gate::{Access, Admission, Credentials, Denied, Gate, Hold};
pub use handover::Handover;
pub use http::Gateway;
pub use name::RepoName;
pub use refusal::LEADER_HEADER;
pub use repositories::{HookCommand, Repositories};
pub use settings::Settings;

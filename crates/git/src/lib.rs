//! The only place that starts git.
//!
//! Everything git can do to us goes through its arguments, its environment, its configuration and what it starts in
//! turn. So, for every command:
//!
//! - **Arguments** are built from checked types ([`Oid`], [`RefName`], [`RemoteName`], [`RepoDir`]), never by a shell,
//!   and what a user gave stands after `--`.
//! - **The environment** is cleared: no `GIT_*` variable of a hook, no trace, no system or user configuration, no
//!   home directory. Transports are those of [`Protocols`] and no others.
//! - **Time and output** are bounded. git leads a process group of its own, which is ended as a whole: at the end of
//!   its time, when git exits, and when the caller loses interest ([`Process`]).
//! - **Secrets** reach git by its environment alone ([`Credentials`]), and nothing it says is shown before it has
//!   passed the [`Redactor`] (INV-8).
//!
//! A push sends object ids, never names, never with `+`, and says per ref what became of it ([`porcelain`]). What an
//! answer means is left to the caller.

pub mod configure;
pub mod count;
pub mod credentials;
pub mod error;
pub mod git;
pub mod init;
pub mod locks;
pub mod name;
pub mod oid;
pub mod porcelain;
pub mod process;
pub mod protocols;
pub mod push;
pub mod query;
pub mod redact;
pub mod repo;
pub mod run;
pub mod serve;

pub use count::ObjectCount;
pub use credentials::Credentials;
pub use error::{Error, Result};
pub use git::{Git, Objects, Version};
pub use init::Init;
pub use name::{BadName, RefName, RefPattern, RemoteName};
pub use oid::{BadOid, Oid};
pub use porcelain::{Flag, Line};
pub use process::Process;
pub use protocols::Protocols;
pub use push::{Lease, Push, PushAnswer, Update};
pub use query::{Aside, Refs, has_secret};
pub use redact::Redactor;
pub use repo::RepoDir;
pub use run::{Answer, End};
pub use serve::{Serve, Service, Session};

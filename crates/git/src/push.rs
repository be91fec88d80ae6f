//! `git push`, as the mirror uses it: object ids to full names, never forced, all or nothing.

use std::ffi::OsString;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::git::Git;
use crate::name::{RefName, RemoteName};
use crate::oid::Oid;
use crate::porcelain::{self, Line};
use crate::repo::RepoDir;
use crate::run::{Bounds, End};

/// How many refs one push may update; far below what the arguments of a process may hold.
pub const UPDATES_MAX: usize = 1000;
/// What the porcelain of such a push may take up.
const STDOUT_BYTES_MAX: usize = 8 << 20;

/// One ref to be moved forward.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// What it is to be. Never zero: refs are not deleted.
    pub oid: Oid,
    /// The ref on the other side.
    pub to: RefName,
}

/// What a ref on the other side must be for the push to be accepted.
///
/// git lets a ref with a matching lease go back as well. So only watermarks get one, never a data ref.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The ref on the other side.
    pub name: RefName,
    /// What it must be; nothing means that it must not exist.
    pub expected: Option<Oid>,
}

/// What to push.
#[derive(Debug, Clone)]
pub struct Push<'a> {
    /// Where the objects are.
    pub repo: &'a RepoDir,
    /// Where to.
    pub remote: &'a RemoteName,
    /// The refs, all or none of which are moved.
    pub updates: &'a [Update],
    /// What must be true on the other side.
    pub leases: &'a [Lease],
    /// What git is given; then its process group is ended.
    pub timeout: Duration,
}

/// What became of a push.
#[derive(Debug, Clone)]
pub struct PushAnswer {
    /// How git ended. Only exit code 0 can mean success.
    pub end: End,
    /// What it said about refs.
    pub lines: Vec<Line>,
    /// What else it said, redacted.
    pub stderr: String,
}

impl Git {
    /// Pushes. An answer means that git ran, not that anything was moved.
    pub async fn push(&self, push: &Push<'_>) -> Result<PushAnswer> {
        if push.updates.is_empty() || push.updates.len() > UPDATES_MAX {
            let problem = format!("{} refs in one push; 1 to {UPDATES_MAX} are possible", push.updates.len());
            return Err(Error::invalid("push", problem));
        }
        if let Some(update) = push.updates.iter().find(|update| update.oid.is_zero()) {
            return Err(Error::invalid("push", format!("{} would be deleted", update.to)));
        }
        let bounds = Bounds { time: push.timeout, stdout_bytes_max: STDOUT_BYTES_MAX };
        let answer = self.remote("push", push.repo, arguments(push), bounds).await?;
        let mut lines = porcelain::parse(&answer.stdout);
        for line in &mut lines {
            line.reason = line.reason.as_deref().map(|reason| self.redactor().redact(reason));
            line.summary = self.redactor().redact(&line.summary);
        }
        Ok(PushAnswer { end: answer.end, lines, stderr: answer.stderr })
    }
}

fn arguments(push: &Push<'_>) -> Vec<OsString> {
    let mut args: Vec<OsString> = Vec::with_capacity(16 + push.updates.len());
    for setting in [format!("remote.{}.mirror=false", push.remote), "push.gpgSign=false".to_owned()] {
        args.push("-c".into());
        args.push(setting.into());
    }
    for flag in
        ["push", "--porcelain", "--atomic", "--no-verify", "--no-follow-tags", "--recurse-submodules=no"]
    {
        args.push(flag.into());
    }
    for lease in push.leases {
        let expected = lease.expected.as_ref().map_or("", Oid::as_str);
        args.push(format!("--force-with-lease={}:{expected}", lease.name).into());
    }
    args.push("--".into());
    args.push(push.remote.as_str().into());
    args.extend(push.updates.iter().map(|update| format!("{}:{}", update.oid, update.to).into()));
    args
}

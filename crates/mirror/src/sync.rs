//! `mirror sync`: says how the refs of both sides stand and, if asked to, brings forward those that can be.
//!
//! A repair is a push like any other: of object ids, never forced, with a lease on the watermark, so it cannot move what
//! has moved there meanwhile or what has diverged. It has the lock of the repository: no mirror pushes at the same time.

use serde::Serialize;
use stargate_git::{Git, Lease, Push, RefName, RepoDir, Update};

use crate::classify::{Outcome, judge};
use crate::compare::{Pair, Standing, compare};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::lock::WorkerLock;
use crate::permit::Permit;

/// What to do about differences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Only say what there is.
    DryRun,
    /// Bring forward what we are ahead of.
    Repair,
}

/// What was found, and what was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Synced {
    /// All refs, as they were found.
    pub refs: Vec<Pair>,
    /// Refs that were brought forward.
    pub repaired: Vec<RefName>,
    /// Refs that could not be, each with what was said.
    pub refused: Vec<Refused>,
}

/// A ref that was not brought forward.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// The ref.
    #[serde(rename = "ref")]
    pub name: RefName,
    /// Why.
    pub error: String,
}

impl Synced {
    /// Whether both sides agree now.
    pub fn is_aligned(&self) -> bool {
        self.refs.iter().all(|pair| pair.standing == Standing::Equal || self.repaired.contains(&pair.name))
    }
}

/// Compares both sides and repairs if asked to. Goes on past refs that cannot be repaired.
pub async fn sync(
    git: &Git,
    repo: &RepoDir,
    config: &Config,
    mode: Mode,
    permit: &dyn Permit,
) -> Result<Synced> {
    // Before anything is compared: what is found out then still holds when it is pushed.
    let lock = match mode {
        Mode::DryRun => None,
        Mode::Repair => Some(lock(repo, config).await?),
    };
    let may_push = || permit.may_push() && lock.as_ref().is_some_and(WorkerLock::is_ours);
    let refs = compare(git, repo, config).await?;
    let mut synced = Synced { refs, repaired: Vec::new(), refused: Vec::new() };
    if mode == Mode::DryRun {
        return Ok(synced);
    }
    // What a ledger refers to goes before it.
    let mut pairs: Vec<Pair> = synced.refs.clone();
    pairs.sort_by_key(|pair| config.routes.is_ledger(&pair.name));
    for pair in pairs {
        let refusal = match pair.standing {
            Standing::Equal => continue,
            Standing::Ahead | Standing::OnlyHere => {
                if !may_push() {
                    return Err(Error::NotLeader);
                }
                bring_forward(git, repo, config, &pair).await?
            }
            Standing::Behind | Standing::OnlyThere => Some("the remote has more than we have".to_owned()),
            Standing::Diverged => Some("both sides have what the other has not".to_owned()),
        };
        match refusal {
            None => synced.repaired.push(pair.name),
            Some(error) => synced.refused.push(Refused { name: pair.name, error }),
        }
    }
    Ok(synced)
}

async fn lock(repo: &RepoDir, config: &Config) -> Result<WorkerLock> {
    let (path, config) = (repo.path().to_owned(), config.clone());
    let taken = tokio::task::spawn_blocking(move || WorkerLock::claim(&path, config.claim())).await;
    taken.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

/// Pushes one ref, and its watermark. Answers why not, if not.
async fn bring_forward(git: &Git, repo: &RepoDir, config: &Config, pair: &Pair) -> Result<Option<String>> {
    let Some(oid) = &pair.local else { return Ok(Some("there is nothing here".to_owned())) };
    if !git.has_object(repo, oid).await? {
        return Ok(Some("its object is missing here".to_owned()));
    }
    let names = std::iter::once(&pair.remote_ref).chain(&pair.watermark_ref);
    let updates: Vec<Update> = names.map(|to| Update { oid: oid.clone(), to: to.clone() }).collect();
    let lease = |name: &RefName| Lease { name: name.clone(), expected: pair.watermark.clone() };
    let leases: Vec<Lease> = pair.watermark_ref.iter().map(lease).collect();
    let (remote, timeout) = (&config.remote, config.push_timeout);
    let push = Push { repo, remote, updates: &updates, leases: &leases, timeout };
    let verdict = judge(&git.push(&push).await?, &updates);
    match verdict.outcome {
        Outcome::Done | Outcome::AlreadyThere => Ok(None),
        outcome => {
            tracing::warn!(name = %pair.name, error = verdict.error, "a ref could not be brought forward");
            let why = match outcome {
                Outcome::Policy => "the remote refuses it",
                Outcome::Diverged | Outcome::Recheck => "the remote moved meanwhile",
                Outcome::Auth => "the remote does not let us in",
                Outcome::Outage | Outcome::TimedOut | Outcome::Unclear => "the remote cannot be reached",
                Outcome::Local => "something is wrong with its objects here",
                Outcome::Config | Outcome::Done | Outcome::AlreadyThere => "it cannot work as it is set up",
            };
            Ok(Some(format!("{why}: {}", verdict.error)))
        }
    }
}

//! `mirror sync`: says how the refs of both sides stand and, if asked to, brings forward those that can be.
//!
//! A repair is a push like any other: of object ids, never forced, so it cannot move what has moved there meanwhile
//! or what has diverged.

use serde::Serialize;
use stargate_git::{Git, Push, RefName, RepoDir, Update};

use crate::classify::{Outcome, judge};
use crate::compare::{Pair, Standing, compare};
use crate::config::Config;
use crate::error::{Error, Result};
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
                if !permit.may_push() {
                    return Err(Error::NotLeader);
                }
                bring_forward(git, repo, config, &pair).await?
            }
            Standing::Behind | Standing::OnlyThere => Some("the remote has more than we have"),
            Standing::Diverged => Some("both sides have what the other has not"),
        };
        match refusal {
            None => synced.repaired.push(pair.name),
            Some(error) => synced.refused.push(Refused { name: pair.name, error: error.into() }),
        }
    }
    Ok(synced)
}

/// Pushes one ref, and its watermark. Answers why not, if not.
async fn bring_forward(
    git: &Git,
    repo: &RepoDir,
    config: &Config,
    pair: &Pair,
) -> Result<Option<&'static str>> {
    let Some(oid) = &pair.local else { return Ok(Some("there is nothing here")) };
    if !git.has_object(repo, oid).await? {
        return Ok(Some("its object is missing here"));
    }
    let names = std::iter::once(&pair.remote_ref).chain(&pair.watermark_ref);
    let updates: Vec<Update> = names.map(|to| Update { oid: oid.clone(), to: to.clone() }).collect();
    let push =
        Push { repo, remote: &config.remote, updates: &updates, leases: &[], timeout: config.push_timeout };
    let verdict = judge(&git.push(&push).await?, &updates);
    match verdict.outcome {
        Outcome::Done | Outcome::AlreadyThere => Ok(None),
        outcome => {
            tracing::warn!(name = %pair.name, error = verdict.error, "a ref could not be brought forward");
            Ok(Some(match outcome {
                Outcome::Policy => "the remote refuses it",
                Outcome::Diverged | Outcome::Recheck => "the remote moved meanwhile",
                Outcome::Auth => "the remote does not let us in",
                Outcome::Outage | Outcome::TimedOut => "the remote cannot be reached",
                Outcome::Local => "something is wrong with its objects here",
                Outcome::Config | Outcome::Done | Outcome::AlreadyThere => "it cannot work as it is set up",
            }))
        }
    }
}

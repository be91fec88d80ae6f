//! The leader's look at pushes that no hook has recorded: at the beginning of a term, and again and again.
//! Locks of gits that were killed are removed on the way: they would refuse all pushes to come.
//!
//! `post-receive` may fail after refs have moved, and git does not mind. What counts as missing, and why it is looked at
//! twice, is told in `stargate_repo::reconcile`.

use std::time::Duration;

use stargate_base::{Epoch, ErrorClass, chain, clock};
use stargate_gateway::RepoName;
use stargate_gateway::hook::pre_receive::WATERMARKS;
use stargate_git::{Git, RefName, RefPattern, RepoDir, locks};
use stargate_leader::{Guard, Leadership};
use stargate_queue::Error;
use stargate_repo::SharedPushes;
use stargate_repo::reconcile::{self, Gap, SETTLE};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::config::Settings;
use crate::failure::{Failure, Result};
use crate::hooks::default_branch;
use crate::mirroring::Places;

/// Hooks record every ref that is pushed, so every ref is looked at.
const ALL_REFS: &str = "refs/*";

/// Repositories that are looked at a second time in one round; the others have their turn in the next.
const SUSPECTS_MAX: usize = 1000;

/// Records what hooks did not.
#[derive(Debug)]
pub(crate) struct Recorder {
    places: Places,
    git: Git,
    all: RefPattern,
    /// The mirror's own, which nobody pushes here: they move with every push to the remote.
    watermarks: RefPattern,
    every: Duration,
    pushes: SharedPushes,
}

/// A repository with refs that seem not to be recorded.
struct Suspect {
    name: RepoName,
    repo: RepoDir,
    gaps: Vec<Gap>,
}

impl Recorder {
    /// For the repositories of the configuration.
    pub(crate) fn new(settings: &Settings, pushes: SharedPushes) -> Result<Self> {
        let pattern = |text| RefPattern::parse(text).map_err(|error| Failure::config(error.to_string()));
        let (all, watermarks) = (pattern(ALL_REFS)?, pattern(WATERMARKS)?);
        let (places, git) = (Places::of(settings), settings.git.git());
        let every = settings.mirror.config.reconcile_every;
        Ok(Self { places, git, all, watermarks, every, pushes })
    }

    /// Looks in every term of this node until `stop`.
    pub(crate) async fn run(self, leadership: Leadership, stop: CancellationToken) {
        let (this, process) = (&self, &stop);
        leadership
            .while_leading(stop.clone(), |guard| async move {
                let stopping = guard.stopping().child_token();
                let led = this.lead(&guard, &stopping);
                tokio::pin!(led);
                tokio::select! {
                    () = &mut led => {}
                    () = process.cancelled() => {
                        stopping.cancel();
                        led.await;
                    }
                }
            })
            .await;
    }

    /// One term.
    async fn lead(&self, guard: &Guard, stopping: &CancellationToken) {
        let mut rounds = tokio::time::interval(self.every);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while stopping.run_until_cancelled(rounds.tick()).await.is_some() {
            match self.round(guard.epoch(), stopping).await {
                Ok(()) => {}
                Err(Error::Deposed { .. }) => {
                    guard.deposed();
                    return;
                }
                // The next round finds the same.
                Err(error) => tracing::warn!(
                    error = chain(&error),
                    "refs could not be compared with the pushes that are recorded"
                ),
            }
        }
    }

    /// Looks at all repositories, and records what is missing. Ends early, between two writes, when it is to stop.
    async fn round(&self, epoch: Epoch, stopping: &CancellationToken) -> stargate_queue::Result<()> {
        let mut suspects = Vec::new();
        for (name, repo) in self.repositories().await {
            unlock(&name, &repo).await;
            let Some(found) = stopping.run_until_cancelled(self.look(&name, &repo)).await else {
                return Ok(());
            };
            let Some(gaps) = passed_over(&name, found)? else { continue };
            if !gaps.is_empty() {
                suspects.push(Suspect { name, repo, gaps });
            }
            if suspects.len() == SUSPECTS_MAX {
                break;
            }
        }
        if suspects.is_empty() || tokio::time::timeout(SETTLE, stopping.cancelled()).await.is_ok() {
            return Ok(());
        }
        for Suspect { name, repo, gaps } in suspects {
            let Some(found) = stopping.run_until_cancelled(self.look(&name, &repo)).await else {
                return Ok(());
            };
            let Some(found) = passed_over(&name, found)? else { continue };
            let missing = reconcile::settled(&gaps, found);
            if missing.is_empty() {
                continue;
            }
            let (pushes, branch) = (self.pushes.as_ref(), default_branch(repo.path()));
            let recorded =
                reconcile::record(pushes, name.as_str(), branch.as_deref(), epoch, missing, clock::wall());
            if let Some(refs) = passed_over(&name, recorded.await)? {
                tracing::info!(repo = %name, refs, "pushes that no hook had recorded were recorded");
            }
        }
        Ok(())
    }

    async fn repositories(&self) -> Vec<(RepoName, RepoDir)> {
        let places = self.places.clone();
        let listed = tokio::task::spawn_blocking(move || places.list()).await;
        match listed.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic())) {
            Ok(listed) => listed,
            Err(failure) => {
                tracing::warn!(error = failure.message, "the repositories could not be listed");
                Vec::new()
            }
        }
    }

    /// What of a repository is not recorded as it is. One that cannot be read has nothing to be recorded.
    async fn look(&self, name: &RepoName, repo: &RepoDir) -> stargate_queue::Result<Vec<Gap>> {
        let refs = match self.git.local_refs(repo, std::slice::from_ref(&self.all)).await {
            Ok(refs) => refs,
            Err(error) => {
                tracing::warn!(repo = %name, error = chain(&error), "the refs could not be listed");
                return Ok(Vec::new());
            }
        };
        let pushed = refs.iter().filter(|(name, _)| !self.watermarks.matches(name));
        let here = pushed.map(|(name, oid)| (name.as_str().to_owned(), oid.as_str().to_owned())).collect();
        let looked_for = |name: &str| {
            RefName::parse(name).is_ok_and(|name| self.all.matches(&name) && !self.watermarks.matches(&name))
        };
        reconcile::look(self.pushes.as_ref(), name.as_str(), &here, looked_for).await
    }
}

/// Removes what killed gits have left in the way of others.
async fn unlock(name: &RepoName, repo: &RepoDir) {
    let folder = repo.clone();
    let removing =
        tokio::task::spawn_blocking(move || locks::remove_abandoned(&folder, clock::wall().into()));
    match removing.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic())) {
        Ok(removed) => {
            for lock in removed {
                tracing::warn!(repo = %name, lock = %lock.display(), "a lock that a killed git had left was removed");
            }
        }
        Err(error) => tracing::warn!(repo = %name, %error, "locks could not be looked for"),
    }
}

/// What went well; nothing if the trouble is with this repository alone: the others have their turn all the same.
fn passed_over<T>(name: &RepoName, result: stargate_queue::Result<T>) -> stargate_queue::Result<Option<T>> {
    match result {
        Err(error) if matches!(error.class(), ErrorClass::ValidationFailure | ErrorClass::Conflict) => {
            tracing::warn!(repo = %name, error = chain(&error), "pushes to it cannot be compared or recorded");
            Ok(None)
        }
        result => result.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_trouble_with_one_repository_is_passed_over() {
        let name = RepoName::parse("a").unwrap();
        let passed = |error| passed_over::<()>(&name, Err(error));
        assert!(passed(Error::invalid("default_branch", "is none")).is_ok_and(|passed| passed.is_none()));
        assert!(passed(Error::Deposed { epoch: Epoch::new(1), current: Epoch::new(2) }).is_err());
        let away = Error::Store {
            operation: "answer",
            class: ErrorClass::RetryableTransient,
            hint: None,
            source: "away".into(),
        };
        assert!(passed(away).is_err());
        assert_eq!(passed_over(&name, Ok(1)).unwrap(), Some(1));
    }
}

//! Pushes tasks until they are there, or until the tries are spent.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use stargate_base::clock;
use stargate_git::Push;
use tokio_util::sync::CancellationToken;

use super::remote::{Look, Remote};
use super::{Step, Steps};
use crate::classify::{Outcome, Verdict, judge};
use crate::metrics;
use crate::permit::Permit;
use crate::plan::{self, Task};

/// What a push that is under way is given when the worker is to stop.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// How a task came to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Via {
    /// It was pushed.
    Push,
    /// It was there already.
    AlreadyMirrored,
}

impl Via {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::AlreadyMirrored => "already-mirrored",
        }
    }
}

/// How tries ended.
#[derive(Debug)]
pub(super) enum Tried {
    /// All are there, in the order of the tasks.
    There { vias: Vec<Via>, attempts: u32 },
    /// Not all are, and the tries are spent.
    Spent { verdict: Verdict, attempts: u32, since: Timestamp },
    /// Another node leads.
    NotLeader,
    /// The worker is to stop; nothing is known.
    Stopped,
}

/// What pushing needs besides the remote.
pub(super) struct Means {
    pub(super) permit: Arc<dyn Permit>,
    pub(super) steps: Arc<dyn Steps>,
    pub(super) stop: CancellationToken,
}

/// Pushes tasks that go together. With one try it is a probe, or the last chance of a parked ref.
pub(super) async fn push(remote: &mut Remote, tasks: &[&Task], tries: u32, means: &Means) -> Tried {
    let since = clock::wall();
    let mut vias: Vec<Option<Via>> = vec![None; tasks.len()];
    let mut look = Look::Glance;
    let mut attempt = 0;
    loop {
        find_there(remote, tasks, &mut vias, look).await;
        let open: Vec<&Task> =
            tasks.iter().zip(&vias).filter(|(_, via)| via.is_none()).map(|(task, _)| *task).collect();
        if open.is_empty() {
            return Tried::There { vias: vias.into_iter().flatten().collect(), attempts: attempt };
        }
        if !means.permit.may_push() {
            return Tried::NotLeader;
        }
        attempt += 1;
        let verdict = match once(remote, &open, means).await {
            Some(Ok(via)) => {
                let vias = vias.into_iter().map(|known| known.unwrap_or(via)).collect();
                return Tried::There { vias, attempts: attempt };
            }
            Some(Err(verdict)) => verdict,
            None => return Tried::Stopped,
        };
        look = Look::Closely;
        let asked = verdict.outcome.asks();
        let spent = attempt >= tries;
        if spent {
            if asked {
                // What was unknown may have arrived.
                find_there(remote, tasks, &mut vias, look).await;
                if vias.iter().all(Option::is_some) {
                    return Tried::There { vias: vias.into_iter().flatten().collect(), attempts: attempt };
                }
            }
            return Tried::Spent { verdict, attempts: attempt, since };
        }
        metrics::retried(verdict.outcome.as_str());
        let pause = remote.config().push_backoff.delay(attempt);
        tracing::warn!(
            attempt,
            pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
            outcome = verdict.outcome.as_str(),
            error = verdict.error,
            "a push failed and is tried again"
        );
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = means.stop.cancelled() => return Tried::Stopped,
        }
    }
}

/// Finds out which tasks need no push.
async fn find_there(remote: &Remote, tasks: &[&Task], vias: &mut [Option<Via>], look: Look) {
    for (task, via) in tasks.iter().zip(vias) {
        if via.is_none() && remote.has(task, look).await {
            *via = Some(Via::AlreadyMirrored);
        }
    }
}

/// One push, and what it says. Nothing if the worker is to stop.
async fn once(remote: &mut Remote, tasks: &[&Task], means: &Means) -> Option<Result<Via, Verdict>> {
    let empty = stargate_git::Refs::new();
    let (updates, leases) = plan::updates(tasks, remote.known().unwrap_or(&empty));
    means.steps.reached(Step::Pushing);
    let push = Push {
        repo: remote.repo(),
        remote: &remote.config().remote,
        updates: &updates,
        leases: &leases,
        timeout: remote.push_timeout(),
    };
    let stopped = async {
        means.stop.cancelled().await;
        tokio::time::sleep(STOP_GRACE).await;
    };
    let answer = tokio::select! {
        answer = remote.git().push(&push) => answer,
        () = stopped => return None,
    };
    means.steps.reached(Step::Pushed);
    let verdict = match &answer {
        Ok(answer) => judge(answer, &updates),
        Err(error) => Verdict::new(crate::classify::judge_error(error), error.to_string()),
    };
    Some(match verdict.outcome {
        Outcome::Done => {
            remote.learn(&updates);
            Ok(Via::Push)
        }
        Outcome::AlreadyThere => {
            remote.learn(&updates);
            Ok(Via::AlreadyMirrored)
        }
        _ => Err(refine(remote, tasks, verdict).await),
    })
}

/// Looks further where the answer alone does not tell.
async fn refine(remote: &mut Remote, tasks: &[&Task], mut verdict: Verdict) -> Verdict {
    if verdict.outcome == Outcome::Local {
        // git says "needs force" for an object that it does not have, and for one that is no commit.
        for task in tasks {
            if !remote.object_is_here(task).await {
                verdict.error = format!("{} is not in the repository; {}", task.oid, verdict.error);
                return verdict;
            }
        }
        if verdict.per_ref.iter().any(|said| said.status.contains("[rejected]")) {
            verdict.outcome = Outcome::Diverged;
        }
    }
    if verdict.outcome.asks()
        && let Err(trouble) = remote.ask().await
    {
        // A remote that does not even say what it has is away, whatever became of the push.
        remote.forget();
        verdict.outcome = trouble.outcome;
        verdict.error = format!("{}; then: {}", verdict.error, trouble.error);
    }
    verdict
}

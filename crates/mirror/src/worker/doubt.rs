//! What becomes of entries whose tries are spent: whose fault it is, and what follows from that.
//!
//! | fault | what is done |
//! |---|---|
//! | the remote's | a letter, and everybody waits; it is requeued when the remote takes pushes again |
//! | the entry's own | a letter, its ref is parked, the others go on |
//! | unclear | others are pushed in its place: if the remote takes one, it is the entry's own, else the remote's |
//!
//! A letter of the last kind comes back by itself in any case: with the remote, or after a while, a few times.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use stargate_base::Backoff;

use super::tries::{Tried, Via};
use super::{Round, WINDOW_COALESCED, Worker};
use crate::classify::{Blame, Verdict};
use crate::dead_letter::{DeadLetter, Reason, Return};
use crate::error::Result;
use crate::plan::{self, Task};

/// How many others are pushed at once to find out whose fault it is; each may take as long as a push may.
const WITNESSES_MAX: usize = 3;

/// How often an entry that failed nobody knows why is requeued by itself; see [`chance`].
const CHANCES_MAX: u32 = 8;
const CHANCES_FACTOR: f64 = 4.0;
const CHANCES_PAUSE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// How many letters are requeued at once; the rest follow with the next comparison.
const RETURNING_MAX: usize = 1000;

/// Tries that are spent.
pub(super) struct Spent {
    pub(super) tasks: Vec<Task>,
    /// It was a probe, with one try.
    pub(super) probing: bool,
    pub(super) verdict: Verdict,
    pub(super) attempts: u32,
    pub(super) since: Timestamp,
}

/// What others have shown.
enum Shown {
    /// The remote takes pushes.
    Takes,
    /// It is away.
    Away(Verdict),
    /// Nothing: there were no others, or they fared no better.
    Nothing,
    /// The worker is to end.
    End(Round),
}

impl Worker {
    /// What becomes of entries whose tries are spent.
    pub(super) async fn spent(&mut self, spent: Spent) -> Result<Round> {
        match (spent.verdict.outcome.blame(), spent.probing) {
            (Blame::Remote, true) => {
                self.away(&spent.verdict, Vec::new());
                Ok(self.waiting())
            }
            (Blame::Remote, false) => self.give_up_with_remote(spent).await,
            (Blame::Entry, true) => {
                // It answered, so this was no probe after all: the entry gets its other tries.
                self.answered().await?;
                Ok(Round::Worked)
            }
            (Blame::Entry, false) => self.give_up_alone(spent, Return::Never).await,
            (Blame::Unclear, _) => self.doubt(spent).await,
        }
    }

    /// The remote takes nothing: this is given up, and the rest waits.
    async fn give_up_with_remote(&mut self, spent: Spent) -> Result<Round> {
        let Spent { tasks, verdict, attempts, since, .. } = spent;
        let surrender = self.surrender(
            tasks.len(),
            verdict.clone(),
            verdict.reason(),
            Return::WithRemote,
            attempts,
            since,
        );
        let letters = surrender.await?;
        self.away(&verdict, letters);
        Ok(Round::Worked)
    }

    /// The remote does not take this: it is given up, and the rest goes on.
    async fn give_up_alone(&mut self, spent: Spent, returns: Return) -> Result<Round> {
        let Spent { tasks, verdict, attempts, since, .. } = spent;
        for task in &tasks {
            self.remote.park(&task.name);
        }
        let reason = match verdict.reason() {
            // Others have shown that it is not away.
            Reason::Outage => Reason::Rejected,
            reason => reason,
        };
        self.surrender(tasks.len(), verdict, reason, returns, attempts, since).await?;
        self.answered().await?;
        Ok(Round::Worked)
    }

    /// Finds out whose fault it is.
    async fn doubt(&mut self, spent: Spent) -> Result<Round> {
        // One that failed before, and others got through since.
        let again = |task: &Task| task.requeued || self.remote.is_parked(&task.name);
        let proven = !spent.probing && self.taken && spent.tasks.iter().any(again);
        let shown = if proven { Shown::Takes } else { self.ask_others(&spent.tasks).await? };
        match (shown, spent.probing) {
            (Shown::Takes, false) => {
                self.taken = false;
                self.give_up_alone(spent, Return::Later).await
            }
            (Shown::Takes, true) => {
                // It gets one more try; if that fails too, it is given up without asking others again.
                for task in &spent.tasks {
                    self.remote.park(&task.name);
                }
                self.answered().await?;
                Ok(Round::Worked)
            }
            (Shown::Nothing, false) => self.give_up_with_remote(spent).await,
            (Shown::Nothing, true) => {
                self.away(&spent.verdict, Vec::new());
                Ok(self.waiting())
            }
            (Shown::Away(verdict), true) => {
                self.away(&verdict, Vec::new());
                Ok(self.waiting())
            }
            (Shown::Away(verdict), false) => self.give_up_with_remote(Spent { verdict, ..spent }).await,
            (Shown::End(round), _) => Ok(round),
        }
    }

    /// Pushes others that wait and have nothing to do with these tasks. What the remote takes then is found to be there
    /// when its turn comes.
    async fn ask_others(&mut self, tasks: &[Task]) -> Result<Shown> {
        // The first ones may all be of one ref.
        self.on_books(|books| books.fill(WINDOW_COALESCED)).await?;
        let others = self.others(tasks);
        let first = usize::try_from(self.breaker.failures()).unwrap_or(0) % others.len().max(1);
        for other in others.iter().cycle().skip(first).take(others.len().min(WITNESSES_MAX)) {
            match self.try_push(other, 1).await {
                Tried::There { vias, .. } if vias.contains(&Via::Push) => {
                    self.taken = true;
                    return Ok(Shown::Takes);
                }
                Tried::There { .. } => {}
                Tried::Spent { verdict, .. } if verdict.outcome.blame() == Blame::Remote => {
                    return Ok(Shown::Away(verdict));
                }
                // Refused, or unclear as well.
                Tried::Spent { .. } => {}
                Tried::NotLeader => return Ok(Shown::End(Round::NotLeader)),
                Tried::Stopped => return Ok(Shown::End(Round::Stopped)),
            }
        }
        Ok(Shown::Nothing)
    }

    fn others(&mut self, tasks: &[Task]) -> Vec<Vec<Task>> {
        let remote = &self.remote;
        let Some(books) = &mut self.books else { return Vec::new() };
        plan::others(books.pending(), tasks, |name| remote.is_parked(name))
    }
}

/// Of open letters, newest first, those that are to be requeued now, while the remote takes pushes; in the order of the
/// journal. `pause` is what one that failed nobody knows why waits the first time.
pub(super) fn returning(open: &[DeadLetter], now: Timestamp, pause: Duration) -> Vec<String> {
    let is_due = |letter: &&DeadLetter| match letter.returns() {
        Return::Never => false,
        Return::WithRemote => true,
        Return::Later => chance(letter, pause).is_some_and(|at| at <= now),
    };
    let due = open.iter().rev().filter(is_due).take(RETURNING_MAX);
    due.map(|letter| letter.dead_letter_id.clone()).collect()
}

/// When an entry that failed nobody knows why is tried again: after a minute, 4, 16 and so on up to a day.
fn chance(letter: &DeadLetter, pause: Duration) -> Option<Timestamp> {
    let requeues = letter.requeues();
    if requeues >= CHANCES_MAX {
        return None;
    }
    let pauses = Backoff { first: pause, factor: CHANCES_FACTOR, cap: CHANCES_PAUSE_MAX, jitter: 0.0 };
    let wait = SignedDuration::try_from(pauses.base_delay(requeues + 1)).ok()?;
    letter.dead_lettered_at.saturating_add(wait).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn letter(id: &str, reason: &str, returns: Option<Return>, requeues: u32) -> DeadLetter {
        let mut letter = json!({
            "dead_letter_id": id, "entry_id": id, "reason": reason, "error": "x", "git_exit": 1, "per_ref": [],
            "attempts": 3, "first_attempt_at": "2026-01-01T00:00:00Z", "dead_lettered_at": "2026-01-01T00:00:00Z",
            "journal": {"journal_id": "j", "segment": 1, "offset": 0, "bytes": 1},
            "payload": {"ref": "refs/kv/a", "new_oid": "1", "meta": {"requeues": requeues}},
        });
        if let Some(returns) = returns {
            letter["returns"] = serde_json::to_value(returns).unwrap();
        }
        serde_json::from_value(letter).unwrap()
    }

    fn due_after(open: &[DeadLetter], seconds: i64) -> Vec<String> {
        let now = "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds);
        returning(open, now, Duration::from_secs(60))
    }

    #[test]
    fn letters_of_an_outage_return_at_once_and_refused_ones_never() {
        let open = [
            letter("e", "timeout", Some(Return::WithRemote), 9),
            letter("d", "outage", Some(Return::Never), 0),
            letter("c", "rejected", None, 0),
            letter("b", "auth", None, 0),
            letter("a", "outage", None, 0),
        ];
        assert_eq!(due_after(&open, 0), ["a", "b", "e"], "in the order of the journal");
    }

    #[test]
    fn what_failed_nobody_knows_why_returns_a_few_times_after_longer_and_longer_pauses() {
        let pauses: Vec<Option<i64>> = (0..10)
            .map(|requeues| {
                let letter = letter("a", "timeout", Some(Return::Later), requeues);
                let at = chance(&letter, Duration::from_secs(60))?;
                assert!(due_after(std::slice::from_ref(&letter), 0).is_empty());
                Some(at.duration_since(letter.dead_lettered_at).as_secs())
            })
            .collect();
        let known = [60, 240, 960, 3840, 15_360, 61_440, 86_400, 86_400].map(Some);
        assert_eq!(pauses, [&known[..], &[None, None]].concat());
    }
}

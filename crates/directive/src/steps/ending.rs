//! How an execution ends: the outcome is recorded, or the run is left for a while.

use std::time::Duration;

use stargate_base::ErrorClass;
use stargate_queue::retry::RETRIES_EXHAUSTED;

use super::heart::BEATS_PER_LEASE;
use super::say::{Who, millis, say};
use super::{Ended, Execution, RUN_HELD, Trouble, reached};
use crate::kv::Keys;
use crate::metrics;
use crate::pace::Pace;
use crate::retry::{Failures, GiveUp, Next};
use crate::run::{Begin, End, NewRun, Outcome, Run, Step};
use crate::store::{SharedDirectives, Standing};

/// Somebody else was faster too often.
pub const CONFLICT_EXHAUSTED: &str = "CONFLICT_EXHAUSTED";

/// The longest wait for which an execution stays.
const IN_PLACE_MAX: Duration = Duration::from_secs(5);
/// How often the record of an outcome is tried before the run is left to be taken up.
const FINALIZE_TRIES: u32 = 5;
/// What lies between two of them.
const FINALIZE_PAUSE: Duration = Duration::from_millis(300);

impl Execution {
    /// What becomes of the run after a failure.
    pub(super) async fn after(mut self, trouble: Trouble) -> Ended {
        let (next, failures) = self.count(&trouble);
        let trouble = match trouble.restart {
            true => self.restart(trouble).await,
            false => trouble,
        };
        match next {
            Next::Retry(after) if !self.given.is_last_try => self.wait(after, failures, trouble).await,
            Next::Retry(_) => self.fail(given_up(GiveUp::TriesExhausted, trouble)).await,
            Next::GiveUp(why) => self.fail(given_up(why, trouble)).await,
        }
    }

    /// What is to be done about a failure, with those before it.
    fn count(&self, trouble: &Trouble) -> (Next, Failures) {
        let mut failures = self.heart.beat().failures;
        failures.at(self.position.processed + self.position.replayed());
        let next = failures.count(&self.given.directive.retry, trouble.class, trouble.retry_after);
        (next, failures)
    }

    /// How long to wait without giving the execution up, if that is short enough: the engine is not asked for every
    /// second that a source wants.
    pub(super) fn short_wait(&self, trouble: &Trouble) -> Option<Duration> {
        let (Next::Retry(after), failures) = self.count(trouble) else { return None };
        if trouble.restart || self.given.is_last_try || after > IN_PLACE_MAX {
            return None;
        }
        self.note_wait(after, failures, trouble);
        metrics::retry(&trouble.code, trouble.class);
        Some(after)
    }

    fn note_wait(&self, after: Duration, failures: Failures, trouble: &Trouble) {
        let cursor = self.position.cursor.as_ref();
        say!(WARN, self.who, cursor, error_class = %trouble.class, code = trouble.code, error = trouble.message,
            attempt = failures.transient.max(failures.conflict), delay_ms = millis(after), "retrying");
        self.heart.say(|beat| {
            let mut pace = Pace::resumed(self.page_size_max(), beat.page_size);
            if trouble.limited {
                pace.limited();
                beat.page_size = Some(pace.size());
            }
            beat.failures = failures;
            beat.waiting_for = Some(trouble.message.clone());
        });
    }

    async fn wait(self, after: Duration, failures: Failures, trouble: Trouble) -> Ended {
        self.note_wait(after, failures, &trouble);
        // The lease outlives the wait, so that no other run comes between.
        let lease_for = after + self.given.directive.heartbeat * BEATS_PER_LEASE;
        match self.heart.beat_for(lease_for).await {
            Ok(Standing::Lost) => return self.lost(),
            Ok(Standing::CancelAsked) => return self.finalize(Outcome::Cancelled, None).await,
            Ok(Standing::Held) => {}
            Err(error) => {
                say!(WARN, self.who, self.position.cursor.as_ref(), %error, "the wait could not be noted")
            }
        }
        Ended::Wait { after, trouble }
    }

    /// The run goes on with another execution of it: what this one knows of it is kept, and its lease lasts until then.
    pub(super) async fn leave(self) -> Ended {
        let lease_for = self.given.directive.heartbeat * BEATS_PER_LEASE;
        match self.heart.beat_for(lease_for).await {
            Ok(Standing::Held) => Ended::More(Box::new(self.progress())),
            Ok(Standing::CancelAsked) => self.finalize(Outcome::Cancelled, None).await,
            Ok(Standing::Lost) => self.lost(),
            Err(error) => self.after(error.into()).await,
        }
    }

    /// What was read does not hold together: the next execution begins at the source's beginning.
    async fn restart(&mut self, trouble: Trouble) -> Trouble {
        match self.reset_cursor().await {
            Ok(()) => trouble,
            Err(other) => other,
        }
    }

    async fn fail(self, trouble: Trouble) -> Ended {
        let cursor = self.position.cursor.as_ref();
        say!(ERROR, self.who, cursor, severity = "FATAL", error_class = %trouble.class, code = trouble.code,
            error = trouble.message, "the run failed and waits for an operator");
        match self.finalize(Outcome::Failed, Some(trouble.clone())).await {
            Ended::Finished(_) => Ended::Failed(trouble),
            other => other,
        }
    }

    /// Step 7: the outcome is recorded and the lease given back.
    pub(super) async fn finalize(self, outcome: Outcome, trouble: Option<Trouble>) -> Ended {
        let error = trouble.map(|trouble| format!("{}: {}", trouble.code, trouble.message));
        for attempt in 1.. {
            let end = End { outcome, error: error.clone() };
            match self.given.store.run_end(&self.lease, end).await {
                Ok(true) => {
                    reached(self.given.watch.as_deref(), Step::Finalize);
                    break;
                }
                Ok(false) => return self.lost(),
                Err(error) if attempt >= FINALIZE_TRIES => {
                    let trouble = Trouble::from(error);
                    let after = self.given.directive.retry.transient.delay(1);
                    return Ended::Wait { after, trouble };
                }
                Err(_) => tokio::time::sleep(FINALIZE_PAUSE).await,
            }
        }
        metrics::run(&self.who.directive, outcome);
        let known = Run { outcome: Some(outcome), ..self.run };
        let run = self.given.store.run(&self.given.run).await.ok().flatten().unwrap_or(known);
        say!(
            INFO,
            self.who,
            self.position.cursor.as_ref(),
            step = Step::Finalize.as_str(),
            outcome = outcome.as_str(),
            pages = run.pages,
            created = run.counts.created,
            updated = run.counts.updated,
            unchanged = run.counts.unchanged,
            failed = run.counts.failed,
            "finalized"
        );
        Ended::Finished(Box::new(run))
    }

    /// Another execution goes on with the run, or will: this one writes nothing more.
    pub(super) fn lost(self) -> Ended {
        say!(WARN, self.who, self.position.cursor.as_ref(), error_class = %ErrorClass::Conflict,
            "the run's lease is no longer ours");
        let message = "another execution has the lease of the run, or nobody could be asked".to_owned();
        let after = self.given.directive.retry.conflict.delay(1);
        Ended::Wait { after, trouble: Trouble::new(ErrorClass::Conflict, RUN_HELD, message) }
    }
}

/// Ends a run that nobody executes any more, for instance because its job was cancelled while it waited. False if
/// somebody does, or it has ended.
pub async fn end_abandoned(store: &SharedDirectives, run: &Run, end: End) -> stargate_queue::Result<bool> {
    let keys = Keys::of(&run.tenant, &run.project, &run.directive)?;
    let outcome = end.outcome;
    let new = NewRun {
        id: run.id.clone(),
        directive: run.directive.clone(),
        tenant: run.tenant.clone(),
        project: run.project.clone(),
        engine: run.engine.clone(),
        workflow_id: run.workflow_id.clone(),
        worker: "operator".to_owned(),
        lease: keys.run,
        lease_for: Duration::from_secs(30),
    };
    let Begin::Begun { lease, run } = store.run_begin(new).await? else { return Ok(false) };
    let is_ended = store.run_end(&lease, end).await?;
    if is_ended {
        metrics::run(&run.directive, outcome);
        let who = Who {
            directive: run.directive.clone(),
            workflow_id: run.workflow_id.clone(),
            run_id: run.id.to_string(),
            tenant: run.tenant.clone(),
            project: run.project.clone(),
        };
        say!(
            INFO,
            who,
            run.cursor.as_ref(),
            step = Step::Finalize.as_str(),
            outcome = outcome.as_str(),
            "finalized"
        );
    }
    Ok(is_ended)
}

/// What a failure is called that is not tried again.
pub(super) fn given_up(why: GiveUp, trouble: Trouble) -> Trouble {
    let (code, tries) = match why {
        GiveUp::Poison => return trouble,
        GiveUp::ConflictExhausted => (CONFLICT_EXHAUSTED, "somebody else was faster too often"),
        GiveUp::TriesExhausted => (RETRIES_EXHAUSTED, "failed as often as it may"),
    };
    let message = format!("{tries}; the last error was {}: {}", trouble.code, trouble.message);
    Trouble::new(ErrorClass::Fatal, code, message)
}

//! Step 1: the run is entered and its lease taken, or it is told why not.

use std::sync::Arc;

use stargate_base::ErrorClass;

use super::ending::{end_abandoned, given_up};
use super::heart::{BEATS_PER_LEASE, Heart};
use super::say::{Who, millis, say};
use super::{Assignment, Ended, Execution, Position, RUN_ENDED, RUN_HELD, Trouble, reached};
use crate::kv::Keys;
use crate::metrics;
use crate::retry::{Failures, GiveUp, Next};
use crate::run::{Begin, End, NewRun, Outcome, Step};

/// Step 1: the directive is known, its run is entered and the lease taken.
pub(super) async fn acquire_context(given: Assignment) -> Result<Execution, Ended> {
    let directive = &given.directive;
    let who = Who::of(&given);
    let heartbeat = directive.heartbeat;
    say!(
        INFO,
        who,
        None,
        step = Step::AcquireContext.as_str(),
        engine = given.engine,
        source = directive.source.kind(),
        spec_ref = directive.spec_ref,
        "acquiring context"
    );
    let begun = async {
        let keys = Keys::of(&directive.tenant, &directive.project, &directive.name)?;
        let new = new_run(&given, &keys);
        Ok::<_, stargate_queue::Error>((keys, given.store.run_begin(new).await?))
    };
    let (keys, begun) = match begun.await {
        Ok(begun) => begun,
        Err(error) => return Err(not_begun(&given, &who, error.into()).await),
    };
    match begun {
        Begin::Begun { lease, run } => {
            reached(given.watch.as_deref(), Step::AcquireContext);
            let heart =
                Heart::start(&given.tasks, given.store.clone(), lease.clone(), heartbeat, run.beat.clone());
            let table = Arc::new(directive.sink.table.clone());
            let position = Position::beginning();
            Ok(Execution {
                given,
                who,
                keys,
                lease,
                run: *run,
                heart,
                table,
                position,
                batches: 0,
                pages: 0,
                sink: None,
            })
        }
        Begin::Held { run, worker, until } => {
            let message = format!("run {run} of this directive goes on at {worker}, until {until} at least");
            let trouble = Trouble::new(ErrorClass::Conflict, RUN_HELD, message);
            metrics::conflict();
            Err(not_begun(&given, &who, trouble).await)
        }
    }
}

/// A run that ended and whose engine does not know yet, one that fails here, or one that has to wait.
async fn not_begun(given: &Assignment, who: &Who, trouble: Trouble) -> Ended {
    let known = given.store.run(&given.run).await;
    if let Ok(Some(run)) = &known
        && let Some(outcome) = run.outcome
    {
        return match outcome {
            Outcome::Succeeded | Outcome::Cancelled => Ended::Finished(Box::new(run.clone())),
            Outcome::Failed => Ended::Failed(Trouble::new(
                ErrorClass::Fatal,
                RUN_ENDED,
                run.error.clone().unwrap_or_default(),
            )),
        };
    }
    // A new run is counted by how often it was tried; one that has begun knows what failed.
    let mut failures = match &known {
        Ok(Some(run)) => run.beat.failures,
        Ok(None) | Err(_) => {
            let before = given.attempt.saturating_sub(1);
            Failures { transient: before, conflict: before, ..Failures::default() }
        }
    };
    match failures.count(&given.directive.retry, trouble.class, trouble.retry_after) {
        Next::Retry(after) if !given.is_last_try => {
            say!(
                WARN,
                who,
                None,
                error_class = %trouble.class,
                code = trouble.code,
                error = trouble.message,
                delay_ms = millis(after),
                "the run cannot begin yet"
            );
            Ended::Wait { after, trouble }
        }
        next => {
            let why = if let Next::GiveUp(why) = next { why } else { GiveUp::TriesExhausted };
            let trouble = given_up(why, trouble);
            say!(
                ERROR,
                who,
                None,
                severity = "FATAL",
                error_class = %trouble.class,
                code = trouble.code,
                error = trouble.message,
                "the run cannot begin"
            );
            if let Ok(Some(run)) = known {
                let error = Some(format!("{}: {}", trouble.code, trouble.message));
                let ended = end_abandoned(&given.store, &run, End { outcome: Outcome::Failed, error }).await;
                ended
                    .err()
                    .iter()
                    .for_each(|error| say!(WARN, who, None, %error, "that could not be recorded"));
            }
            Ended::Failed(trouble)
        }
    }
}

fn new_run(given: &Assignment, keys: &Keys) -> NewRun {
    let directive = &given.directive;
    NewRun {
        id: given.run.clone(),
        directive: directive.name.clone(),
        tenant: directive.tenant.clone(),
        project: directive.project.clone(),
        engine: given.engine.to_owned(),
        workflow_id: given.workflow_id.clone(),
        worker: given.worker.clone(),
        lease: keys.run.clone(),
        lease_for: directive.heartbeat * BEATS_PER_LEASE,
    }
}

//! The way back into the store: notes and settlements of all running jobs, written in batches.
//!
//! One task writes. While one batch is on its way the next collects, so that a busy process writes large batches
//! and an idle one writes at once. Nothing here is ever cancelled: a store that is away is asked again until it
//! answers, and so is one that needs an operator, because a finished execution that goes unrecorded is run twice. That is in time as long as the lease lasts,
//! which a store that is away for longer than that does not grant; what comes later is stale, and the job runs again.

use std::sync::Arc;
use std::time::Duration;

use stargate_base::{Backoff, ErrorClass, chain};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::job::JobError;
use crate::local::{Held, StopReason};
use crate::metrics::Metrics;
use crate::store::{Note, Outcome, Settlement, SharedStore, Verdict};

/// The largest batch in one call.
const BATCH_MAX: usize = 2000;

enum Message {
    Note(Note),
    Settle(Settlement),
}

/// Where running jobs send what they have to say.
#[derive(Clone)]
pub(crate) struct Reporter(mpsc::Sender<Message>);

impl Reporter {
    pub(crate) async fn note(&self, note: Note) {
        // The other end is gone only after shutdown has given up waiting; the lease then tells the rest.
        let _ = self.0.send(Message::Note(note)).await;
    }

    pub(crate) async fn settle(&self, settlement: Settlement) {
        let _ = self.0.send(Message::Settle(settlement)).await;
    }
}

/// Writes what the reporters send.
pub(crate) struct Recorder {
    inbox: mpsc::Receiver<Message>,
    store: SharedStore,
    held: Arc<Held>,
    room: Arc<Notify>,
    metrics: Arc<Metrics>,
}

/// A connected pair. `capacity` bounds what may wait; senders then wait too.
pub(crate) fn channel(
    capacity: usize,
    store: SharedStore,
    held: Arc<Held>,
    room: Arc<Notify>,
    metrics: Arc<Metrics>,
) -> (Reporter, Recorder) {
    let (sender, inbox) = mpsc::channel(capacity);
    (Reporter(sender), Recorder { inbox, store, held, room, metrics })
}

impl Recorder {
    /// Writes until `close` is cancelled and everything sent before is written.
    pub(crate) async fn run(mut self, close: CancellationToken) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        loop {
            let received = tokio::select! {
                received = self.inbox.recv_many(&mut batch, BATCH_MAX) => received,
                () = close.cancelled(), if !self.inbox.is_closed() => {
                    self.inbox.close();
                    continue;
                }
            };
            if received == 0 {
                return;
            }
            self.write(std::mem::take(&mut batch)).await;
        }
    }

    async fn write(&self, batch: Vec<Message>) {
        // A job's notes were sent before its settlement, so writing all notes first keeps every job's order.
        let mut notes = Vec::new();
        let mut settlements = Vec::with_capacity(batch.len());
        for message in batch {
            match message {
                Message::Note(note) => notes.push(note),
                Message::Settle(settlement) => settlements.push(settlement),
            }
        }
        if !notes.is_empty() {
            self.write_notes(notes).await;
        }
        if !settlements.is_empty() {
            self.write_settlements(settlements).await;
        }
    }

    async fn write_notes(&self, notes: Vec<Note>) {
        let fences: Vec<_> = notes.iter().map(|note| note.fence).collect();
        match self.insist("record progress", || self.store.note(notes.clone())).await {
            Ok(verdicts) => {
                for (fence, _) in fences.iter().zip(&verdicts).filter(|(_, v)| **v == Verdict::Stale) {
                    self.metrics.duplicate_skips.increment(1);
                    self.held.stop(*fence, StopReason::Lost);
                }
            }
            Err(error) => {
                tracing::warn!(error = chain(&error), "progress was refused by the store and is dropped")
            }
        }
    }

    async fn write_settlements(&self, settlements: Vec<Settlement>) {
        match self.insist("record outcomes", || self.store.settle(settlements.clone())).await {
            Ok(verdicts) => self.settled(&settlements, &verdicts),
            Err(error) if settlements.len() > 1 => {
                // One of them cannot be stored. Alone, each of the others can.
                tracing::warn!(
                    error = chain(&error),
                    "a batch of outcomes was refused; writing them one by one"
                );
                for settlement in settlements {
                    Box::pin(self.write_settlements(vec![settlement])).await;
                }
            }
            Err(error) => self.write_refused(settlements, &error).await,
        }
    }

    /// An outcome that the store will never take becomes a failure that it will. Of an execution that has none, because the job is
    /// given back, there is nothing to refuse.
    async fn write_refused(&self, mut settlements: Vec<Settlement>, refusal: &Error) {
        let Some(settlement) = settlements.pop() else { return };
        let fence = settlement.fence;
        tracing::error!(job = %fence.job, error = chain(refusal), "the outcome was refused by the store");
        if matches!(settlement.outcome, Outcome::Released | Outcome::Aborted) {
            self.held.remove(std::iter::once(fence));
            return;
        }
        let error = JobError::new(
            "OUTCOME_REFUSED",
            ErrorClass::Fatal,
            format!("the store refused the outcome of this execution: {refusal}"),
        );
        let failed = vec![Settlement { fence, outcome: Outcome::Failed { error } }];
        match self.insist("record a failure", || self.store.settle(failed.clone())).await {
            Ok(verdicts) => self.settled(&failed, &verdicts),
            Err(error) => {
                tracing::error!(job = %fence.job, error = chain(&error), "given up; the lease will expire");
                self.held.remove(std::iter::once(fence));
            }
        }
    }

    fn settled(&self, settlements: &[Settlement], verdicts: &[Verdict]) {
        for (settlement, _) in settlements.iter().zip(verdicts).filter(|(_, v)| **v == Verdict::Stale) {
            self.metrics.duplicate_skips.increment(1);
            tracing::warn!(
                job = %settlement.fence.job,
                attempt = settlement.fence.attempt,
                "this execution has lost its job; what it did is not recorded"
            );
        }
        self.held.remove(settlements.iter().map(|settlement| settlement.fence));
        self.room.notify_one();
    }

    /// Asks until the store answers. Passed on is only that it does not take what is said: a store that was restored, locked up or
    /// mounted read-only says as much of everything, and takes it when an operator has been there.
    async fn insist<T, Fut>(&self, what: &'static str, ask: impl Fn() -> Fut) -> Result<T, Error>
    where
        Fut: Future<Output = Result<T, Error>>,
    {
        let mut failures = 0;
        loop {
            match ask().await {
                Ok(answer) => {
                    if failures > 0 {
                        tracing::info!(failures, "the store answers again: could {what}");
                    }
                    return Ok(answer);
                }
                Err(error) if is_refusal(&error) => return Err(error),
                Err(error) => {
                    failures += 1;
                    if failures == 1 || failures % 20 == 0 {
                        tracing::warn!(failures, error = chain(&error), "cannot {what}; will try again");
                    }
                    tokio::time::sleep(Backoff::RECONNECT.delay(failures).max(Duration::from_millis(10)))
                        .await;
                }
            }
        }
    }
}

/// Whether it is about what was said and not about the store. A conflict is so only if the database tells of it: one that is being moved
/// says so, too.
fn is_refusal(error: &Error) -> bool {
    let of_database = matches!(error, Error::Store { class: ErrorClass::Conflict, .. });
    of_database || error.class() == ErrorClass::ValidationFailure
}

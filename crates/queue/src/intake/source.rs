//! What the loop needs of another queue.

use std::time::Duration;

use async_trait::async_trait;

use super::Terms;
use crate::error::Result;
use crate::job::{Job, JobError, Json};

/// Another queue whose work is done here.
#[async_trait]
pub trait Source: Send + Sync + std::fmt::Debug + 'static {
    /// The name that links are kept under; must stay the same for ever.
    fn name(&self) -> &str;

    /// The queues that are served there.
    fn queues(&self) -> &[String];

    /// Locks items that are due, at most `limit`, has `accept` take them, and only then acknowledges them. Items in
    /// `except` are left alone. Answers the items that are acknowledged now and those that slipped away.
    async fn take(&self, limit: usize, except: &[String], accept: &dyn Accept) -> Result<Taken>;

    /// Tells of each item whether it is still ours, in their order, and keeps what would expire.
    async fn look(&self, items: &[Claim]) -> Result<Vec<Standing>>;

    /// Ends an item there, if it is still ours.
    async fn settle(&self, item: &Claim, ending: &Ending) -> Result<Settled>;
}

/// Takes offers in, before the source is told that they were taken.
#[async_trait]
pub trait Accept: Send + Sync {
    /// One answer for each offer, in their order. When it has answered, what is taken survives any crash.
    async fn accept(&self, offers: Vec<Offer>) -> Result<Vec<Answer>>;
}

/// An item that a source has locked for us.
#[derive(Debug, Clone)]
pub struct Offer {
    /// Its name there.
    pub item: String,
    /// The queue it waits in there.
    pub queue: String,
    /// The handler's input.
    pub payload: Json,
    /// Higher runs first; 0 to [`PRIORITY_MAX`](crate::job::PRIORITY_MAX).
    pub priority: i16,
    /// Executions it is to get here.
    pub max_attempts: u16,
    /// What the acknowledgement will write there, so that it can be told from anybody else's.
    pub mark: String,
    /// Trace context of the sender.
    pub trace_id: Option<String>,
    /// How its retries are to be spaced.
    pub terms: Terms,
}

/// What becomes of an offer.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// It is on disk here: acknowledge it.
    Taken,
    /// Not now: leave it as it is.
    Skip,
    /// Never: it is to fail there at once, with this error.
    Refused(JobError),
}

/// What a take has led to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taken {
    /// Acknowledged.
    pub acknowledged: Vec<Claim>,
    /// Accepted here, but not to be had there after all.
    pub slipped: Vec<Claim>,
    /// Failed there at once.
    pub refused: usize,
}

/// An item that was acknowledged with a mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Its name there.
    pub item: String,
    /// What our acknowledgement wrote.
    pub mark: String,
}

/// Whose an item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Ours, and it will not expire there for so long.
    Ours {
        /// For so long at least.
        safe: Duration,
    },
    /// Nobody's: it waits to be taken.
    Waiting,
    /// Somebody else's, or ended, or gone.
    Lost,
}

/// How an item ends.
#[derive(Debug, Clone)]
pub struct Ending {
    /// How.
    pub outcome: EndingOutcome,
    /// Executions it took here.
    pub attempts: u16,
}

/// How an item ends.
#[derive(Debug, Clone)]
pub enum EndingOutcome {
    /// Well, with this result.
    Done(Option<Json>),
    /// Badly, for good.
    Failed(JobError),
    /// By an operator here.
    Cancelled,
}

/// What a settlement led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// It is written there.
    Written,
    /// The item was not ours any more, or has been settled before; nothing was changed.
    NotOurs,
}

impl Ending {
    /// How a job ended; `None` while it has not.
    pub(super) fn of(job: Job) -> Option<Self> {
        use crate::job::State::{Cancelled, Done, Failed, Processing, Queued};
        let outcome = match job.state {
            Queued | Processing => return None,
            Done => EndingOutcome::Done(job.result),
            Cancelled => EndingOutcome::Cancelled,
            Failed => EndingOutcome::Failed(job.error.unwrap_or_else(unknown_error)),
        };
        Some(Self { outcome, attempts: job.attempt_count })
    }
}

fn unknown_error() -> JobError {
    JobError::new("HANDLER_ERROR", stargate_base::ErrorClass::Fatal, "failed without an error")
}

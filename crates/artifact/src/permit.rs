//! The right to publish: asked at the last moment, and good for a moment only.
//!
//! Between the answer and what it allows the process may stand still for any length of time, and lose its lease in it.
//! So an answer is used at once, seen to be fresh right before an artifact would appear, or asked for again.

use std::time::Duration;

use async_trait::async_trait;
use stargate_base::clock::Moment;

use crate::error::{Error, Result};
use crate::{Publisher, Step};

/// How old an answer may be when an artifact appears on the strength of it, counted from the question.
///
/// Much less than a lease, and much more than a rename or the begin of a request takes.
pub const PERMISSION_AGE_MAX: Duration = Duration::from_millis(500);

/// The right to publish, asked at the last moment before an artifact appears.
#[async_trait]
pub trait Permit: Send + Sync {
    /// Whether this attempt still holds its job. An error counts as no.
    async fn holds(&self) -> bool;
}

/// A yes, and when it was asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Permission {
    asked: Moment,
}

impl Permission {
    /// Asks. The first time is a step of the publication.
    pub(crate) async fn ask(by: &Publisher<'_>, round: u32) -> Result<Self> {
        let asked = Moment::now();
        if !by.permit.holds().await {
            return Err(Error::Fenced);
        }
        if round == 0 {
            by.steps.reached(Step::Permitted);
        }
        Ok(Self { asked })
    }

    /// Whether it may still be used.
    pub(crate) fn is_fresh(self) -> bool {
        self.asked.age() < PERMISSION_AGE_MAX
    }

    /// One that has just been given.
    #[cfg(test)]
    pub(crate) fn given_now() -> Self {
        Self { asked: Moment::now() }
    }
}

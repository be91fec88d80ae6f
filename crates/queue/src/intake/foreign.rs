//! A handler that asks the source whether its job is still ours before each attempt.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::round::claim;
use super::{Inner, Link, LinkStage, Standing};
use crate::context::Context;
use crate::error::Error;
use crate::handler::{Failure, Handler, HandlerResult};
use crate::job::JobId;

/// How long an attempt that may not begin waits for the order to stop, or before it gives the job back: so long the
/// next claim of it is kept off.
const WAIT: Duration = Duration::from_secs(2);

/// Runs another handler if the job is still ours.
pub(super) struct Foreign {
    intake: Arc<Inner>,
    handler: Arc<dyn Handler>,
}

/// Whether an attempt may begin.
enum Permission {
    Yes,
    /// The item belongs to somebody else, has ended or is gone.
    No,
    /// The source does not answer.
    Unknown(Error),
}

impl Foreign {
    pub(super) fn new(intake: Arc<Inner>, handler: Arc<dyn Handler>) -> Self {
        Self { intake, handler }
    }

    async fn permission(&self, link: &Link) -> Permission {
        if link.stage != LinkStage::Held {
            return Permission::No;
        }
        match self.intake.source.look(&[claim(link)]).await {
            Ok(standings) if matches!(standings.first(), Some(Standing::Ours { .. })) => Permission::Yes,
            Ok(_) => Permission::No,
            // Nobody else can have it before it expires there.
            Err(_) if self.intake.safe().get(&link.item).is_some_and(|until| *until > Instant::now()) => {
                Permission::Yes
            }
            Err(error) => Permission::Unknown(error),
        }
    }
}

#[async_trait]
impl Handler for Foreign {
    async fn run(&self, context: Context) -> HandlerResult {
        let link = match self.intake.link_of(context.job()).await {
            Ok(Some(link)) => link,
            Ok(None) => return self.handler.run(context).await,
            Err(error) => return not_begun(&context, &format!("the store does not answer: {error}")).await,
        };
        match self.permission(&link).await {
            Permission::Yes => {}
            Permission::No => {
                // If this fails the next look does it.
                let _ = self.intake.disown(&link).await;
                return not_begun(&context, "the item is not ours any more").await;
            }
            Permission::Unknown(error) => {
                return not_begun(&context, &format!("the source does not answer: {error}")).await;
            }
        }
        let _ended = Ended { intake: &self.intake, job: context.job() };
        context.retry_in(link.terms.delay_after(context.attempt()));
        self.handler.run(context).await
    }
}

/// Waits a little, then gives the attempt back.
async fn not_begun(context: &Context, why: &str) -> HandlerResult {
    tracing::debug!(job = %context.job(), why, "an attempt may not begin");
    let _ = tokio::time::timeout(WAIT, context.stopping().cancelled()).await;
    Err(Failure::not_begun(why))
}

/// Tells the loop, however the handler ends.
struct Ended<'a> {
    intake: &'a Inner,
    job: JobId,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        tracing::trace!(job = %self.job, "a handler has ended");
        self.intake.ended_count.fetch_add(1, Ordering::AcqRel);
        self.intake.ended.notify_one();
    }
}

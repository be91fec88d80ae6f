//! The three steps of the loop: take what is due, look at what was taken, settle what has ended.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use stargate_base::{ErrorClass, chain};

use super::{
    Accept, Answer, Claim, Ending, EndingOutcome, Inner, Link, LinkFilter, LinkStage, LinkTurn, NewLink,
    Offer, Settled, Standing,
};
use crate::error::{Error, Result};
use crate::job::{JobError, JobId, NewJob, Stage};
use crate::metrics;

/// Links looked at in one call to the source.
const PAGE: u32 = super::link::LINKS_MAX;

/// Links closed in one write. Those written at the source and not closed yet when a process dies are settled once more,
/// which changes nothing.
const CLOSE_TOGETHER: usize = 50;

/// What one round did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Round {
    /// Items taken.
    pub taken: usize,
    /// Items failed at once, because they can never run here.
    pub refused: usize,
    /// Items ended at the source.
    pub settled: usize,
    /// Items that turned out not to be ours any more.
    pub lost: usize,
}

/// What a look found.
pub(super) struct Looked {
    pub(super) lost: usize,
    /// Items that wait at the source and must not be taken while their link is open.
    pub(super) except: Vec<String>,
    /// When to look again.
    pub(super) next: Duration,
}

/// What a take did.
pub(super) struct TakeDone {
    pub(super) count: usize,
    pub(super) refused: usize,
    /// There may be more.
    pub(super) full: bool,
}

impl Inner {
    fn filter(&self, after: Option<String>, ended: bool) -> LinkFilter {
        LinkFilter { source: self.source.name().to_owned(), job: None, ended, after, limit: PAGE }
    }

    /// Answers whether any of them turned.
    async fn turn(&self, claims: Vec<Claim>, turn: LinkTurn) -> Result<bool> {
        if claims.is_empty() {
            return Ok(false);
        }
        Ok(self.store.links_turn(self.source.name(), claims, turn).await? > 0)
    }

    /// The link of a job, if it came from this source.
    pub(super) async fn link_of(&self, job: JobId) -> Result<Option<Link>> {
        let filter = LinkFilter { job: Some(job), limit: 1, ..self.filter(None, false) };
        Ok(self.store.links(filter).await?.pop())
    }

    // Take

    /// Takes as much as there is room for.
    pub(super) async fn take(&self, except: &[String]) -> Result<TakeDone> {
        let room = self.config.ahead_max.saturating_sub(self.ahead().await?);
        if room == 0 {
            return Ok(TakeDone { count: 0, refused: 0, full: false });
        }
        let before = Instant::now();
        let taken = self.source.take(room, except, self).await?;
        let (count, refused) = (taken.acknowledged.len(), taken.refused);
        // Until the first look tells better, nothing is known but that it was ours just now.
        self.safe().extend(taken.acknowledged.iter().map(|claim| (claim.item.clone(), before)));
        self.turn(taken.acknowledged, LinkTurn::Hold).await?;
        // Their jobs never began; the next look cancels them.
        self.turn(taken.slipped, LinkTurn::Disown).await?;
        self.count("taken", count);
        self.count("refused", refused);
        Ok(TakeDone { count, refused, full: count + refused >= room })
    }

    /// Jobs taken that are not finished and do not wait for a retry.
    async fn ahead(&self) -> Result<usize> {
        let (mut ahead, mut open, mut after) = (0, 0, None);
        loop {
            let links = self.store.links(self.filter(after, false)).await?;
            let busy = |link: &&Link| matches!(link.job_stage, Some(stage) if stage != Stage::Delayed);
            ahead += links.iter().filter(busy).count();
            open += links.len();
            match links.last() {
                Some(last) if links.len() == PAGE as usize => after = Some(last.item.clone()),
                _ => break,
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "a gauge")]
        ::metrics::gauge!(metrics::INTAKE_OPEN, "source" => self.source.name().to_owned()).set(open as f64);
        Ok(ahead)
    }

    // Look

    /// Asks the source about everything that is not finished.
    pub(super) async fn look(&self) -> Result<Looked> {
        let mut looked = Looked { lost: 0, except: Vec::new(), next: self.config.poll };
        let mut safe = HashMap::new();
        let mut after = None;
        loop {
            let links = self.store.links(self.filter(after, false)).await?;
            let asked = Instant::now();
            let claims: Vec<Claim> = links.iter().map(claim).collect();
            let standings = if claims.is_empty() { Vec::new() } else { self.source.look(&claims).await? };
            for (link, standing) in links.iter().zip(standings) {
                if let Standing::Ours { safe: span } = standing {
                    safe.insert(link.item.clone(), asked + span);
                    looked.next = looked.next.min(span / 3);
                }
                self.judge(link, standing, &mut looked).await?;
            }
            match links.last() {
                Some(last) if links.len() == PAGE as usize => after = Some(last.item.clone()),
                _ => break,
            }
        }
        *self.safe() = safe;
        self.count("lost", looked.lost);
        Ok(looked)
    }

    async fn judge(&self, link: &Link, standing: Standing, looked: &mut Looked) -> Result<()> {
        let ended = link.job_stage.is_none();
        match (link.stage, standing) {
            // The process that took it has died, or is about to do the same.
            (LinkStage::Accepted, Standing::Ours { .. }) => {
                self.turn(vec![claim(link)], LinkTurn::Hold).await?;
            }
            // Not acknowledged yet: the next take does it.
            (LinkStage::Accepted, Standing::Waiting) | (LinkStage::Held, Standing::Ours { .. }) => {}
            (LinkStage::Disowned, standing) => {
                if standing == Standing::Waiting {
                    looked.except.push(link.item.clone());
                }
                if !ended {
                    self.cancel(link.job).await?;
                }
            }
            // Its end has yet to be written there; the settlement finds out for itself.
            (LinkStage::Held, _) if ended => {
                if standing == Standing::Waiting {
                    looked.except.push(link.item.clone());
                }
            }
            (_, standing) => {
                tracing::warn!(source = self.source.name(), item = link.item, job = %link.job,
                    "the item is not ours any more; its job is cancelled");
                looked.lost += 1;
                if standing == Standing::Waiting {
                    looked.except.push(link.item.clone());
                }
                self.disown(link).await?;
            }
        }
        Ok(())
    }

    /// Stops the job of an item that is not ours. A link that was acknowledged anew since it was read stays.
    pub(super) async fn disown(&self, link: &Link) -> Result<()> {
        if self.turn(vec![claim(link)], LinkTurn::Disown).await? {
            self.cancel(link.job).await?;
        }
        Ok(())
    }

    async fn cancel(&self, job: JobId) -> Result<()> {
        match self.store.cancel(job).await {
            Ok(_) => {
                self.ended.notify_one();
                Ok(())
            }
            // It has ended meanwhile, or was removed.
            Err(Error::WrongState { .. } | Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    // Settle

    /// Ends at the source what has ended here; answers how many items.
    pub(super) async fn settle(&self) -> Result<usize> {
        let (mut settled, mut after) = (0, None);
        loop {
            let links = self.store.links(self.filter(after, true)).await?;
            for some in links.chunks(CLOSE_TOGETHER) {
                let mut closed = Vec::new();
                let result = self.settle_some(some, &mut closed).await;
                // Also those before the one that failed.
                for claim in &closed {
                    self.safe().remove(&claim.item);
                }
                settled += closed.len();
                self.turn(closed, LinkTurn::Close).await?;
                result?;
            }
            match links.last() {
                Some(last) if links.len() == PAGE as usize => after = Some(last.item.clone()),
                _ => return Ok(settled),
            }
        }
    }

    async fn settle_some(&self, links: &[Link], closed: &mut Vec<Claim>) -> Result<()> {
        for link in links {
            if link.stage == LinkStage::Disowned || self.settle_one(link).await? {
                closed.push(claim(link));
            }
        }
        Ok(())
    }

    /// Answers whether nothing is left to be done.
    async fn settle_one(&self, link: &Link) -> Result<bool> {
        let ending = match self.store.job(link.job).await? {
            Some(job) => match Ending::of(job) {
                Some(ending) => ending,
                // An operator has retried it since.
                None => return Ok(false),
            },
            None => gone(),
        };
        match self.settle_there(link, ending).await {
            Ok((Settled::Written, outcome)) => self.count(outcome, 1),
            Ok((Settled::NotOurs, _)) => {
                tracing::warn!(source = self.source.name(), item = link.item, job = %link.job,
                    "the job has ended, but its item was settled before or is not ours any more");
                self.count("late", 1);
            }
            // Something about this one: the others must not wait for it.
            Err(error) if matches!(error.class(), ErrorClass::ValidationFailure) => {
                tracing::error!(source = self.source.name(), item = link.item, job = %link.job,
                    error = chain(&error), "the source refuses the outcome of this job");
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    async fn settle_there(&self, link: &Link, ending: Ending) -> Result<(Settled, &'static str)> {
        let label = match ending.outcome {
            EndingOutcome::Done(_) => "completed",
            EndingOutcome::Failed(_) => "failed",
            EndingOutcome::Cancelled => "cancelled",
        };
        match self.source.settle(&claim(link), &ending).await {
            Ok(settled) => Ok((settled, label)),
            // A result that the source cannot keep must not leave the item open for ever.
            Err(error) if error.class() == ErrorClass::ValidationFailure && label == "completed" => {
                let message =
                    format!("the job is done, but its result cannot be stored at the source: {error}");
                let error = JobError::new("OUTCOME_REFUSED", ErrorClass::Fatal, message);
                let ending = Ending { outcome: EndingOutcome::Failed(error), attempts: ending.attempts };
                Ok((self.source.settle(&claim(link), &ending).await?, "failed"))
            }
            Err(error) => Err(error),
        }
    }
}

#[async_trait]
impl Accept for Inner {
    async fn accept(&self, offers: Vec<Offer>) -> Result<Vec<Answer>> {
        let now = self.store.now().await?;
        let mut answers = Vec::with_capacity(offers.len());
        let (mut new, mut places) = (Vec::new(), Vec::new());
        for offer in offers {
            let job = NewJob {
                queue: offer.queue.clone(),
                priority: offer.priority,
                max_attempts: Some(offer.max_attempts),
                // A trace is a convenience: one that does not fit is left out.
                trace_id: offer.trace_id.filter(|trace| (1..=255).contains(&trace.len())),
                ..NewJob::new(self.config.kind_of(&offer.queue), offer.payload)
            };
            if let Err(refusal) = job.check(now) {
                let error = JobError::new(refusal.code(), ErrorClass::ValidationFailure, refusal.to_string());
                answers.push(Answer::Refused(error));
                continue;
            }
            places.push(answers.len());
            answers.push(Answer::Skip);
            new.push(NewLink { item: offer.item, mark: offer.mark, terms: offer.terms, job });
        }
        if !new.is_empty() {
            let linked = self.store.links_accept(self.source.name(), new).await?;
            for (place, linked) in places.into_iter().zip(linked) {
                if linked.stage == LinkStage::Accepted {
                    answers[place] = Answer::Taken;
                }
            }
        }
        Ok(answers)
    }
}

pub(super) fn claim(link: &Link) -> Claim {
    Claim { item: link.item.clone(), mark: link.mark.clone() }
}

/// What is told of a job that was removed before its end could be written.
fn gone() -> Ending {
    let message = "the job has ended, but its outcome was removed before it could be written here";
    let error = JobError::new("OUTCOME_LOST", ErrorClass::Fatal, message);
    Ending { outcome: EndingOutcome::Failed(error), attempts: 1 }
}

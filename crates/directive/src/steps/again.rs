//! Quarantined records that are tried again, after the directive or its schema was mended.

use std::collections::HashSet;
use std::sync::Arc;

use stargate_base::ErrorClass;

use super::{Assignment, Ended, Execution, Trouble, acquire_context};
use crate::item::{Advance, Batch, Item, Rows};
use crate::parts::Transformed;
use crate::quarantine::{QuarantineFilter, QuarantineId, Quarantined};
use crate::run::Outcome;
use crate::store::PAGE_MAX;

/// What became of quarantined records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retried {
    /// Became items, or were overtaken by one.
    pub resolved: u64,
    /// Are still what they were.
    pub unfit: u64,
}

/// Tries quarantined records of a directive again: those named, or all.
pub async fn retry_quarantined(given: Assignment, only: &[QuarantineId]) -> Result<Retried, Trouble> {
    let mut execution = match acquire_context(given).await {
        Ok(execution) => execution,
        Err(Ended::Failed(trouble) | Ended::Wait { trouble, .. }) => return Err(trouble),
        Err(other @ (Ended::Finished(_) | Ended::Stopped)) => {
            return Err(Trouble::new(ErrorClass::Fatal, super::RUN_HELD, format!("{other:?}")));
        }
    };
    execution.resolve_cursor().await?;
    let answer = execution.try_all(only).await;
    let (outcome, trouble) = match &answer {
        Ok(_) => (Outcome::Succeeded, None),
        Err(trouble) => (Outcome::Failed, Some(trouble.clone())),
    };
    match execution.finalize(outcome, trouble).await {
        Ended::Wait { trouble, .. } => Err(trouble),
        _ => answer,
    }
}

impl Execution {
    /// Newest first: an older record of the same entity is resolved with it.
    async fn try_all(&self, only: &[QuarantineId]) -> Result<Retried, Trouble> {
        let mut retried = Retried::default();
        let mut before = None;
        loop {
            let filter = QuarantineFilter {
                directive: Some(self.who.directive.clone()),
                resolved: false,
                before,
                limit: PAGE_MAX,
            };
            let page = self.given.store.quarantine(filter).await?;
            let Some(last) = page.last() else { return Ok(retried) };
            before = Some(last.id);
            let wanted = |record: &Quarantined| only.is_empty() || only.contains(&record.id);
            let (done, unfit) = self.try_page(page.into_iter().filter(wanted)).await?;
            retried.resolved += done;
            retried.unfit += unfit;
        }
    }

    async fn try_page(&self, records: impl Iterator<Item = Quarantined>) -> Result<(u64, u64), Trouble> {
        let (mut items, mut resolves, mut unfit) = (Vec::<Item>::new(), Vec::new(), 0);
        let mut seen = HashSet::new();
        for record in records {
            // The text of a garbled record is all there is of it.
            let is_text = record.cause == "garbled";
            match self.given.mapping.apply(Ok(record.record)) {
                Transformed::Item(item) if !is_text => {
                    resolves.push(record.id);
                    if seen.insert(item.entity_id.clone()) {
                        items.push(item);
                    }
                }
                _ => unfit += 1,
            }
        }
        let done = resolves.len() as u64;
        if let Some(first) = resolves.first() {
            let name = format!("{}/{}/quarantine/{}", self.lease.run, self.lease.version, first.0);
            self.write_again(name, items, resolves).await?;
        }
        Ok((done, unfit))
    }

    async fn write_again(
        &self,
        request_id: String,
        items: Vec<Item>,
        resolves: Vec<QuarantineId>,
    ) -> Result<(), Trouble> {
        let topic = self.given.directive.sink.outbox.as_deref().map(Arc::from);
        let batch = Batch {
            lease: self.lease.clone(),
            request_id,
            rows: Rows::Here { table: self.table.clone(), items, topic },
            rejects: Vec::new(),
            resolves,
            replayed: false,
            advance: Advance::Still,
        };
        let written = self.given.store.persist(batch).await?;
        crate::metrics::batch(&self.who.directive, written.counts);
        Ok(())
    }
}

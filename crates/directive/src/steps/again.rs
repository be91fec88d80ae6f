//! Quarantined records that are tried again, after the directive or its schema was mended.

use std::collections::HashSet;

use stargate_base::ErrorClass;

use super::{Assignment, Ended, Execution, Trouble, acquire_context};
use crate::item::{Advance, Batch};
use crate::parts::{Part, Transformed};
use crate::quarantine::{QuarantineFilter, QuarantineId, Quarantined};
use crate::run::Outcome;

/// Records that are read at once. Each may be large.
const PAGE: u32 = 50;
/// What is written at once, about.
const BYTES_MAX: usize = 8 * 1024 * 1024;

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
        Err(other @ (Ended::Finished(_) | Ended::Stopped | Ended::More(_))) => {
            return Err(Trouble::new(ErrorClass::Fatal, super::RUN_HELD, format!("{other:?}")));
        }
    };
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
    async fn try_all(&mut self, only: &[QuarantineId]) -> Result<Retried, Trouble> {
        self.resolve_cursor().await?;
        self.sink = self.given.sources.sink(&self.given.directive).await?;
        let mut retried = Retried::default();
        let mut seen = HashSet::new();
        let mut before = None;
        loop {
            let filter = QuarantineFilter {
                directive: Some(self.who.directive.clone()),
                resolved: false,
                before,
                limit: PAGE,
            };
            let page = self.given.store.quarantine(filter).await?;
            let Some(last) = page.last() else { return Ok(retried) };
            before = Some(last.id);
            let (tenant, project) = (self.who.tenant.clone(), self.who.project.clone());
            // The name may have belonged to another tenant's directive once.
            let ours = |record: &Quarantined| record.tenant == tenant && record.project == project;
            let named = |record: &Quarantined| only.is_empty() || only.contains(&record.id);
            let wanted = page.into_iter().filter(|record| ours(record) && named(record));
            let (done, unfit) = self.try_page(wanted, &mut seen).await?;
            retried.resolved += done;
            retried.unfit += unfit;
        }
    }

    async fn try_page(
        &mut self,
        records: impl Iterator<Item = Quarantined>,
        seen: &mut HashSet<String>,
    ) -> Result<(u64, u64), Trouble> {
        let (mut done, mut unfit) = (0, 0);
        let (mut part, mut resolves) = (Part::default(), Vec::new());
        for record in records {
            // The text of a garbled record is all there is of it.
            let is_text = record.cause == "garbled";
            let fitting = match self.given.mapping.apply(Ok(record.record)) {
                Transformed::Item(item) if !is_text => item,
                _ => {
                    unfit += 1;
                    continue;
                }
            };
            done += 1;
            resolves.push(record.id);
            if seen.insert(fitting.entity_id.clone()) {
                part.bytes += fitting.body.get().len();
                part.items.push(fitting);
            }
            if part.bytes > BYTES_MAX {
                self.write_again(std::mem::take(&mut part), std::mem::take(&mut resolves)).await?;
            }
        }
        self.write_again(part, resolves).await?;
        Ok((done, unfit))
    }

    async fn write_again(&mut self, part: Part, resolves: Vec<QuarantineId>) -> Result<(), Trouble> {
        if resolves.is_empty() {
            return Ok(());
        }
        let request_id = self.next_name();
        let (rows, rejects) = self.rows(part, false).await?;
        let batch = Batch {
            lease: self.lease.clone(),
            request_id,
            rows,
            rejects,
            resolves,
            replayed: false,
            advance: Advance::Still,
        };
        let written = self.given.store.persist(batch).await?;
        crate::metrics::batch(&self.who.directive, written.counts);
        Ok(())
    }
}
